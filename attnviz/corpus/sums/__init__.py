"""Counts, exact sums and examples over texts, and the `Survey` that holds them."""
