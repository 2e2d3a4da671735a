"""Builds the site from ``docs/``: pages, reference, and what the commands in them print and draw."""
