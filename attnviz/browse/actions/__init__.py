"""Lays out the screen, and returns the state after each key press."""
