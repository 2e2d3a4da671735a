"""Follows tensors through a running model: where each came from, and what its axes stand for."""
