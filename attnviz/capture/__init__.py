"""Records attention from the forward pass of any torch module."""
