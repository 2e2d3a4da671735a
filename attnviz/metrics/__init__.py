"""Maps to numbers: what heads do, how they combine, how they differ."""
