"""Provides what every other room uses: errors, array types, files, options, progress bars, devices."""
