"""Turns attention calls into the maps of a recording, in numpy."""
