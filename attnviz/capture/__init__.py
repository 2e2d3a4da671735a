"""Attention taken from the forward pass of any torch module."""
