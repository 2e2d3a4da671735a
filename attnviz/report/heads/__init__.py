"""Builds reports of metrics, effects and types of heads, and of a logit's parts: lists, or maps of layers by heads."""
