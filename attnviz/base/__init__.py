"""What every other room uses: errors, array types, files, options, progress bars, devices."""
