"""Hugging Face models: found in a folder or on the hub, checked, loaded, and read."""
