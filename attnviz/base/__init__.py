"""What everyone stands on: errors, array types, files, progress, the machine."""
