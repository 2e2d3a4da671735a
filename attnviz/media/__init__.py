"""Represents the media that a model reads, in which its tokens have places: texts, images and sounds."""
