"""Writes reports as bytes, with one file or room for each format."""
