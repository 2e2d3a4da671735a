"""A decided screen as lines of spans, and pixels."""
