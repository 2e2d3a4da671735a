"""Measures from which part of a picture or sound a module computes each token; no model is known by name."""
