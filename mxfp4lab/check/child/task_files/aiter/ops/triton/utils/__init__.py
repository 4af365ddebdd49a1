"""Part of the stand-in for aiter."""
