"""What all readers share: the settings of a model, examples, the reader itself, and its runs under the capture."""
