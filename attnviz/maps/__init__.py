"""Represents the attention of a run: recordings, their maps, and the files that hold them."""
