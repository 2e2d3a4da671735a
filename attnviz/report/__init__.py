"""Recordings to reports, in which everything is decided."""
