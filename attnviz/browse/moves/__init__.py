"""Answers keys: the layout of the screen, and the state after each key."""
