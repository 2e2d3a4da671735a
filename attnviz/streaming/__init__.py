"""Long maps to pixels and numbers, in memory that does not grow with their area."""
