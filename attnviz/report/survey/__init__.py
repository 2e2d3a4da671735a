"""A survey: the table of its heads, their cards and points, and what changes between two."""
