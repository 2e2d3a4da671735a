"""Surveys the heads of a model over many texts: sums numbers on the device into a `Survey` that merges exactly."""
