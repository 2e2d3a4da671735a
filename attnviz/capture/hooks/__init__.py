"""Watches the functions of torch and of transformers while a model runs."""
