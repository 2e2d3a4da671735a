"""Attention calls of a batch of texts to their numbers, on the device where the model runs."""
