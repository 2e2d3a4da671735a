"""Draws reports as figures and slides."""
