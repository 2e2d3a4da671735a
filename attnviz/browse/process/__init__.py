"""Runs a full-screen application: terminal, threads and saved pictures."""
