"""Computes attention: masks, biases, softmax, torch's kernels, and attention modules."""
