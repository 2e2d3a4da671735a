"""Reports on the steps of decoding: what each looked at, as a list or a film, and what a cache keeps of it."""
