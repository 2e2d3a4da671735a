"""The computation of one head, step by step."""
