"""Computes overviews and numbers of long maps tile by tile, in memory that does not grow with their area."""
