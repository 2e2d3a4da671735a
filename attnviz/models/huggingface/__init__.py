"""Finds Hugging Face models in a folder or on the hub, checks them, loads them, and reads examples with them."""
