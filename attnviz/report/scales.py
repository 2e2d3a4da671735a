"""The colour scale that panels share, or that each has of its own."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from attnviz.base.arrays import FloatArray
from attnviz.base.errors import AttnvizError, option
from attnviz.report.colors import DIVERGING, SEQUENTIAL, ColorScale
from attnviz.report.look import Look
from attnviz.report.panels import CHANGE, SCORE, Panel, Quantity

LOG_RANGE = 1e-4


def share_scales(panels: Iterable[Panel], look: Look | None = None, usual: str = SEQUENTIAL) -> tuple[Panel, ...]:
    """The panels with one colour scale for each quantity, or as the look's limits say.

    Args:
        panels: what is coloured.
        look: the limits, the colormap and whether it is logarithmic.
        usual: the colormap where the look has none.

    Raises:
        AttnvizError: if a logarithmic scale is wanted for scores, which may be negative.
    """
    panels, look = list(panels), look or Look()
    if look.color_limits == "head":
        return tuple(_on_its_own(panel, look, usual) for panel in panels)
    scales = {
        quantity: shared_scale(quantity, [panel for panel in panels if panel.quantity == quantity], look, usual)
        for quantity in {panel.quantity for panel in panels}
    }
    return tuple(replace(panel, scale=scales[panel.quantity]) for panel in panels)


def shared_scale(
    quantity: Quantity, panels: list[Panel], look: Look | None = None, usual: str = SEQUENTIAL
) -> ColorScale:
    """From 0 for weights, around 0 for changes, from the smallest for scores, to the largest visible value.

    Raises:
        AttnvizError: if a logarithmic scale is wanted for scores, which may be negative.
    """
    look = look or Look()
    cmap, log = look.cmap or usual, look.color_scale == "log"
    if quantity is CHANGE:
        return _scale_of_changes(panels)
    if log and quantity is SCORE:
        raise AttnvizError(
            f"{option('color_scale', 'log')} takes no scores, which may be negative; "
            f"linear, or {option('table', 'weights')}, works"
        )
    if not isinstance(look.color_limits, str):
        return ColorScale(*look.color_limits, cmap, log)
    if quantity is SCORE:
        return _scale_of_scores(panels, cmap)
    return _logarithmic_scale(panels, cmap) if log else _scale_of_weights(panels, cmap)


def _scale_of_weights(panels: list[Panel], cmap: str) -> ColorScale:
    high = max(panel.peak for panel in panels)
    return ColorScale(0.0, high if high > 0 else 1.0, cmap)


def _scale_of_changes(panels: list[Panel]) -> ColorScale:
    shown = _shown(panels)
    reach = (float(np.abs(shown).max()) if shown.size else 0.0) or 1.0
    return ColorScale(-reach, reach, DIVERGING)


def _scale_of_scores(panels: list[Panel], cmap: str) -> ColorScale:
    shown = _shown(panels)
    low, high = (float(shown.min()), float(shown.max())) if shown.size else (0.0, 1.0)
    return ColorScale(low, high if high > low else low + 1.0, cmap)


def _logarithmic_scale(panels: list[Panel], cmap: str) -> ColorScale:
    """From the smallest weight above zero, or a ten-thousandth of the largest if that is more."""
    shown = _shown(panels)
    high = float(shown.max()) if shown.size else 1.0
    high = high if high > 0 else 1.0
    above = shown[shown > 0]
    low = max(float(above.min()) if above.size else 0.0, high * LOG_RANGE)
    return ColorScale(min(low, high / 2), high, cmap, log=True)


def _shown(panels: list[Panel]) -> FloatArray:
    """The visible numbers of all panels."""
    shown = np.concatenate([panel.values[panel.visible] for panel in panels])
    return np.asarray(shown[np.isfinite(shown)])


def _on_its_own(panel: Panel, look: Look, usual: str) -> Panel:
    """The panel with a scale of its own values, which its title says."""
    scale = shared_scale(panel.quantity, [panel], look, usual)
    step = (scale.high - scale.low) / 10
    ends = " to ".join(panel.quantity.tick(end, step) for end in (scale.low, scale.high))
    return replace(panel, scale=scale, title=f"{panel.title}: {ends}")


def scale_remarks(look: Look) -> tuple[str, ...]:
    """What is unusual about the colours."""
    own = "Each head has colours of its own: compare heads by their numbers, not by colour."
    log = "Colours are logarithmic."
    return ((own,) if look.color_limits == "head" else ()) + ((log,) if look.color_scale == "log" else ())
