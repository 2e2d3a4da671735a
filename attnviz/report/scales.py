"""The colour scale that panels share, or that each has of its own."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from attnviz.base.arrays import FloatArray
from attnviz.base.errors import AttnvizError
from attnviz.report.colors import DIVERGING, OF_TEXT, SEQUENTIAL, ColorScale
from attnviz.report.look import Look
from attnviz.report.panels import CHANGE, SCORE, Panel, Quantity

LOG_RANGE = 1e-4


def share_scales(panels: Iterable[Panel], look: Look | None = None) -> tuple[Panel, ...]:
    """The panels with one colour scale for each quantity, or as the look's limits say."""
    panels, look = list(panels), look or Look()
    if look.limits == "head":
        return tuple(_on_its_own(panel, look) for panel in panels)
    scales = {
        quantity: shared_scale(quantity, [panel for panel in panels if panel.quantity == quantity], look)
        for quantity in {panel.quantity for panel in panels}
    }
    return tuple(replace(panel, scale=scales[panel.quantity]) for panel in panels)


def shared_scale(quantity: Quantity, panels: list[Panel], look: Look | None = None) -> ColorScale:
    """From 0 for weights, around 0 for changes, from the smallest for scores, to the largest visible value.

    Raises:
        AttnvizError: if a logarithmic scale is wanted for scores, which may be negative.
    """
    look = look or Look()
    if quantity is CHANGE:
        shown = _shown(panels)
        reach = float(np.abs(shown).max()) if shown.size else 1.0
        return ColorScale(-(reach or 1.0), reach or 1.0, DIVERGING)
    log, cmap = look.color_scale == "log", look.cmap or _usual_colormap(look)
    if log and quantity is SCORE:
        raise AttnvizError(
            "--color-scale log takes no scores, which may be negative; linear, or --table weights, works"
        )
    if not isinstance(look.limits, str):
        return ColorScale(*look.limits, cmap, log)
    if quantity is not SCORE and not log:
        return ColorScale(0.0, high if (high := max(panel.peak for panel in panels)) > 0 else 1.0, cmap)
    shown = _shown(panels)
    high = float(shown.max()) if shown.size else 1.0
    low = float(shown.min()) if quantity is SCORE and shown.size else 0.0
    high = high if high > low else low + 1.0
    return ColorScale(_least(shown, high) if log else low, high, cmap, log)


def _shown(panels: list[Panel]) -> FloatArray:
    """The visible numbers of all panels."""
    shown = np.concatenate([panel.values[panel.visible] for panel in panels])
    return np.asarray(shown[np.isfinite(shown)])


def _usual_colormap(look: Look) -> str:
    """The default colours: a text has those beside its paper, but in a terminal, whose paper is not known."""
    return OF_TEXT[look.paper] if look.style == "text" and not look.colors else SEQUENTIAL


def _on_its_own(panel: Panel, look: Look) -> Panel:
    """The panel with a scale of its own values, which its title says."""
    scale = shared_scale(panel.quantity, [panel], look)
    step = (scale.high - scale.low) / 10
    ends = " to ".join(panel.quantity.tick(end, step) for end in (scale.low, scale.high))
    return replace(panel, scale=scale, title=f"{panel.title}: {ends}")


def _least(shown: FloatArray, high: float) -> float:
    """Where a logarithmic scale begins: at the smallest weight above zero, a ten-thousandth of the largest at least."""
    above = shown[shown > 0]
    return min(max(float(above.min()) if above.size else 0.0, high * LOG_RANGE), high / 2)


def scale_remarks(look: Look) -> tuple[str, ...]:
    """What is unusual about the colours."""
    own = "Each head has colours of its own: compare heads by their numbers, not by colour."
    log = "Colours are logarithmic."
    return ((own,) if look.limits == "head" else ()) + ((log,) if look.color_scale == "log" else ())
