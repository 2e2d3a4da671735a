"""Turns recordings and surveys into reports, in which every choice about what is shown is made."""
