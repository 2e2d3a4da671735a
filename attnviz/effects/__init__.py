"""Measures the effects of heads: by ablation, and by direct attribution of a logit."""
