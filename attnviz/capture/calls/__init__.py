"""Describes single attention calls: their tensors, masks and layout."""
