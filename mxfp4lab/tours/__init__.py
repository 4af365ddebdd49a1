"""What the reading notebooks show, computed: each module answers one question of 01, 02, 03 or 06."""
