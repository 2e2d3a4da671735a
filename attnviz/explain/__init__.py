"""Explains the computation of one head, step by step."""
