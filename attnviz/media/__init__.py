"""Represents the media that a model reads, in which its tokens have places; so far texts."""
