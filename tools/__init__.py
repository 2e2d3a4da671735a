"""Programs that make what the package carries."""
