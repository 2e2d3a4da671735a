"""Draws reports as text for a terminal."""
