"""Holds what the inspector knows: its state, the recording, and results computed from it."""
