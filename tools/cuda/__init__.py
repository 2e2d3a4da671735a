"""Runs on a CUDA device what no other machine can: its tests, comparisons with the CPU, and benches."""
