"""Draws a composed screen: lines of spans, and pixels."""
