"""Tests heads for known types, each by its published definition and against a control: `HeadTypes`."""
