"""Draws a decided screen: lines of spans, and pixels."""
