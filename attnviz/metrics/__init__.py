"""Computes numbers from attention maps: metrics of heads, combinations of heads, and differences between runs."""
