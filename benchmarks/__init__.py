"""Benchmarks: ratios of commands and functions, measured in turn within one run."""
