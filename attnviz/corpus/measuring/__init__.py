"""Measures the attention calls of a batch of texts on the device where the model runs."""
