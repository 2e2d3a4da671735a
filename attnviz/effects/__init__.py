"""What the output of a model loses without some of its heads."""
