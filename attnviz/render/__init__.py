"""Writes reports as bytes, with one file or package for each format."""
