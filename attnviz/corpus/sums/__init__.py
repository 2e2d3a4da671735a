"""What is summed up over texts, and the survey that holds it."""
