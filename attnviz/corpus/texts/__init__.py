"""Reads the texts of a corpus, tokenizes them, packs them into batches, and classifies their tokens."""
