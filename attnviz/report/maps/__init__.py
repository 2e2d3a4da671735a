"""Maps of single heads: heatmaps, arcs, shaded text, several heads combined, and two recordings compared."""
