"""Writes reports as pages that work offline."""
