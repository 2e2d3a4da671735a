"""The full-screen inspector."""
