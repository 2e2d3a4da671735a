"""Readers, the one way to open a model: seeded, trained, and Hugging Face ones."""
