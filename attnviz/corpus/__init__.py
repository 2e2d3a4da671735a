"""What heads do over many texts: numbers summed up where the model runs, to a `Survey` that merges exactly."""
