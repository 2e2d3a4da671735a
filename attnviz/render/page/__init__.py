"""Reports as a page that works offline."""
