"""Numbers of heads: metrics, effects, types of heads and parts of a logit, as lists and as layers by heads."""
