"""Provides what every other package uses: errors, array types, files, options, progress bars, devices."""
