"""Sources of recordings: the seeded, the trained and Hugging Face models."""
