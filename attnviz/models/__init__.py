"""Opens models and reads examples with them: the seeded model, the trained model, and Hugging Face models."""
