"""Decides what is on the screen, from state and session, as one frozen value."""
