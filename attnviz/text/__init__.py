"""A text to tokens, and what was chosen of them."""
