"""The parts that all reports share: panels and colour scales, exact numbers, the look, and the report types."""
