"""The library's door: what Python calls to record, open and draw attention."""
