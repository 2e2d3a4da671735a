"""Reports to bytes, one format a file or a room."""
