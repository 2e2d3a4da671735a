"""Splits texts into tokens, groups tokens, and parses the user's selection of layers, heads and tokens."""
