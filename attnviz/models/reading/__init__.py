"""Defines what all readers share: settings, examples, the reader's base class, and runs under the capture."""
