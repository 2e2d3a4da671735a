"""The texts of a corpus: read, tokenized, packed into batches, and the classes of their tokens."""
