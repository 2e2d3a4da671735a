"""The numbers of a run: recordings and their maps, held, saved and named."""
