"""Renders a self-contained submission file, lints it, and reads a pick back from an executed notebook."""
