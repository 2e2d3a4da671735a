"""Reports as figures and slides."""
