"""Chooses the colour scale that panels share, or one for each, and the decimals of their numbers."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from attnviz.base.arrays import BoolArray, FloatArray
from attnviz.base.errors import AttnvizError, option
from attnviz.report.picture.colors import DIVERGING, LOG_RANGE, SEQUENTIAL, ColorScale, Steps, on_paper
from attnviz.report.picture.look import Look
from attnviz.report.picture.panels import LIFT, Panel, Quantity

LOW_SHARE = 0.1  # share of the colormap whose colours can hardly be told from that of zero
MIN_PALE_SHARE = 0.95  # share of pale cells from which on a remark says so
MIN_REMARKED_CELLS = 100  # smaller pictures get no remark on pale cells
MAX_ROW_RATIO = 32  # largest ratio of keys visible to two queries at which one scale of weights still shows all rows
MAX_THUMBNAIL_RATIO = 8  # the same ratio in an overview, where heads are told apart by their patterns alone
EVEN_REACH = 8.0  # times an even share, at which the colours of weights end at the earliest
MIN_LIFT_REACH = 2.0  # lift colours reach at least this far from 1
MIN_EXCESS = 1.005  # values above the scale's end by a smaller factor are not called clipped: nobody can see it
LIFT_QUANTILE = 0.999  # share of the cells that the colours of lift cover; outliers are clipped
STEPS: dict[str, Steps] = {"linear": "linear", "sqrt": "sqrt", "log": "log", "lift": "log"}
ONLY_ONE_KEY = "Every query sees one key, so its weight is 1 by definition; a longer text shows what heads prefer."
ONE_KEY = "Rows with one visible key always have weight 1; the scale ignores them."
LIFTED = "Lift is the weight times the number of keys that the query can see; 1× is no preference."


def share_scales(
    panels: Iterable[Panel],
    look: Look | None = None,
    max_ratio: float = MAX_ROW_RATIO,
    *,
    title_limits: bool = True,
) -> tuple[Panel, ...]:
    """Returns the panels with one colour scale for each quantity.

    Panels show lift instead of weights on request, or if a scale of weights would hide most rows. Their cells get the
    decimals that the largest number of their quantity needs. If the look asks for a scale for each head, each panel has
    its own, whose limits its title then names if there is space for them.
    """
    look = look or Look()
    drawn_panels = list(panels)
    largest: dict[Quantity, float] = {}
    for panel in drawn_panels:
        magnitude = _largest_number(np.abs(panel.values), panel.visible)
        largest[panel.quantity] = max(largest.get(panel.quantity, 0.0), magnitude)
    drawn_panels = [replace(panel, decimals=panel.quantity.decimals(largest[panel.quantity])) for panel in drawn_panels]
    if shows_lift(drawn_panels, look, max_ratio):
        drawn_panels = _with_lift(drawn_panels)
    if look.color_limits == "head":
        scales = [shared_scale(panel.color_quantity, [panel], look) for panel in drawn_panels]
    else:
        sharing: dict[Quantity, list[Panel]] = {}
        for panel in drawn_panels:
            sharing.setdefault(panel.color_quantity, []).append(panel)
        scale_of = {quantity: shared_scale(quantity, group, look) for quantity, group in sharing.items()}
        scales = [scale_of[panel.color_quantity] for panel in drawn_panels]
    scaled_panels = (replace(panel, scale=scale) for panel, scale in zip(drawn_panels, scales, strict=True))
    return tuple(map(with_limits, scaled_panels) if look.color_limits == "head" and title_limits else scaled_panels)


def shared_scale(quantity: Quantity, panels: list[Panel], look: Look | None = None) -> ColorScale:
    """Returns the colour scale of all panels of a quantity: within the user's limits, or by default fit to the values.

    A scale of changes is centred on 0 and ignores the user's limits and colormap.
    """
    look = look or Look()
    cmap, steps = on_paper(look.cmap or SEQUENTIAL, look.drawn_theme), _steps(quantity, look)
    if quantity.centred:  # around 0
        changes = _visible_levels(panels)
        reach = (float(np.abs(changes).max()) if changes.size else 0.0) or 1.0
        return ColorScale(-reach, reach, on_paper(DIVERGING, look.drawn_theme), steps, signed=True)
    if not isinstance(look.color_limits, str):
        low, high = look.color_limits
        return ColorScale(low, high, cmap, steps, clipped=are_clipped(panels, high))
    if quantity.any_sign:  # from the smallest score to the largest
        scores = _visible_levels(panels)
        low, high = (float(scores.min()), float(scores.max())) if scores.size else (0.0, 1.0)
        return ColorScale(low, high if high > low else low + max(1.0, abs(low)), cmap)
    if quantity == LIFT:
        return _scale_of_lifts(panels, cmap)
    # the largest of weights that are not 1 by definition, where a scale ends that was asked for one head
    largest = (_largest_number(panel.levels, panel.informative) for panel in _panels_with_choices(panels))
    high = max(0.0 if look.color_limits == "head" else least_high(panels), *largest)
    if steps != "log":
        return ColorScale(0.0, high if high > 0 else 1.0, cmap, steps, clipped=are_clipped(panels, high))
    high = high or 1.0
    levels = _visible_levels(panels)
    positive_levels = levels[levels > 0]
    low = max(float(positive_levels.min()) if positive_levels.size else 0.0, high * LOG_RANGE)
    return ColorScale(min(low, high / 2), high, cmap, "log", clipped=are_clipped(panels, high))


def least_high(panels: Sequence[Panel]) -> float:
    """Returns the least end of a scale of weights: `EVEN_REACH` times an even share, at most 1; 0 for other quantities.

    Without it, colours would stretch what hardly differs to full ink, and a head that prefers nothing would look like
    one that looks at some keys. The share is that of the query that sees most keys.
    """
    counts = [float(panel.key_counts.max(initial=1.0)) for panel in panels if panel.quantity.is_weight]
    return min(1.0, EVEN_REACH / max(counts)) if counts else 0.0


def even_end_remarks(panels: Sequence[Panel]) -> tuple[str, ...]:
    """Returns the remark that the colours end above the largest weight, at `least_high`; empty if they do not."""
    scale, end = panels[0].scale, least_high(panels)
    largest = max(panel.peak for panel in panels)
    if panels[0].lift or scale.high != end or end == 1 or largest * MIN_EXCESS > end:
        return ()
    return (f"The colours end at {panels[0].quantity.text(end)}, {EVEN_REACH:g} times an even share of the weight.",)


def _steps(quantity: Quantity, look: Look) -> Steps:
    """Returns the spacing of colours along the scale: ``linear``, ``sqrt`` or ``log``, as the look asks."""
    if look.color_scale is None:
        return quantity.steps
    if quantity.any_sign and look.color_scale != "linear":
        raise AttnvizError(
            f"{option('color_scale', look.color_scale)} cannot show scores, which may be negative; "
            f"use linear, or {option('table', 'weights')}"
        )
    if look.color_scale == "lift" and quantity.centred:
        return quantity.steps
    if look.color_scale == "lift" and not (quantity.is_weight or quantity == LIFT):
        raise AttnvizError(
            f"{option('color_scale', 'lift')} needs weights, whose rows sum to 1; use {option('color_scale', 'log')}"
        )
    return STEPS[look.color_scale]


def shows_lift(panels: Sequence[Panel], look: Look, max_ratio: float) -> bool:
    """True if colours show multiples of uniform attention: on request, or where a scale of weights hides most rows.

    A row of n visible keys has the mean weight 1/n, so a scale of weights hides rows if n > 1 varies by more than the
    factor ``max_ratio`` within a panel, or if a panel is pooled. The result is False if the user set limits in numbers,
    which are of weights, and asked for no steps.
    """
    if look.color_scale is not None:
        return look.color_scale == "lift"
    if not isinstance(look.color_limits, str):
        return False
    key_counts = [
        panel.visible_key_counts[panel.visible_key_counts > 1]
        for panel in panels
        if panel.visible_key_counts is not None and panel.quantity.is_weight
    ]
    are_uneven = any(len(counts) and counts.max() > max_ratio * counts.min() for counts in key_counts)
    return are_uneven or any(panel.pooled and panel.quantity.is_weight for panel in panels)


def lift_reach(panels: Sequence[Panel]) -> float:
    """Returns the lift at which the colours of these panels end if they show lift."""
    lifted_panels = [panel for panel in _with_lift(panels) if panel.lift]
    return _scale_of_lifts(lifted_panels, SEQUENTIAL).high if lifted_panels else MIN_LIFT_REACH


def _with_lift(panels: Sequence[Panel]) -> list[Panel]:
    """Returns the panels with colours that show lift, except for those that have none."""
    return [replace(panel, lift=panel.visible_key_counts is not None and panel.quantity.is_weight) for panel in panels]


def _scale_of_lifts(panels: list[Panel], cmap: str) -> ColorScale:
    """Returns a logarithmic scale, centred on 1 (no preference), without the largest thousandth of the lifts."""
    # Without weights that are 1 by definition.
    lifts = np.concatenate([_finite_numbers(panel.levels, panel.informative) for panel in _panels_with_choices(panels)])
    high = max(float(np.quantile(lifts, LIFT_QUANTILE)) if lifts.size else 0.0, MIN_LIFT_REACH)
    return ColorScale(1 / high, high, cmap, "log", clipped=are_clipped(panels, high))


def are_clipped(panels: Sequence[Panel], high: float) -> bool:
    """True if a value lies above the end of the scale by enough to matter."""
    return any(_largest_number(panel.levels, panel.visible) > high * MIN_EXCESS for panel in panels)


def _panels_with_choices(panels: Sequence[Panel]) -> Sequence[Panel]:
    """Returns the panels in which some query sees several keys, or keys are not counted; all if there are none."""
    return [
        panel for panel in panels if panel.visible_key_counts is None or (panel.visible_key_counts > 1).any()
    ] or panels


def _visible_levels(panels: Sequence[Panel]) -> FloatArray:
    """Returns the finite numbers that set the colours of visible cells, of all panels."""
    return np.concatenate([_finite_numbers(panel.levels, panel.visible) for panel in panels])


def _largest_number(numbers: FloatArray, cells: BoolArray) -> float:
    """Returns the largest finite number in these cells; minus infinity if there is none."""
    largest = float(numbers.max(initial=-np.inf)) if cells.all() else np.nan  # without a copy, unless NaN is among them
    return largest if np.isfinite(largest) else float(_finite_numbers(numbers, cells).max(initial=-np.inf))


def _finite_numbers(numbers: FloatArray, cells: BoolArray) -> FloatArray:
    """Returns the finite numbers in these cells, flattened; a view if all cells are chosen and finite."""
    selected_numbers = numbers.ravel() if cells.all() else numbers[cells]
    finite = np.isfinite(selected_numbers)
    return np.asarray(selected_numbers if finite.all() else selected_numbers[finite])


def with_limits(panel: Panel) -> Panel:
    """Returns a panel that has a scale of its own with a title that names the limits: ``: 0% to 54%``."""
    (_, low), *_, (_, high) = panel.color_quantity.ticks(panel.scale)
    return replace(panel, heading=replace(panel.heading, limits=f": {low} to {high}"))


def scale_remarks(look: Look, panels: Sequence[Panel] = ()) -> tuple[str, ...]:
    """Returns remarks on unusual colours, and on values that the colours do not show; empty if there are none."""
    remarks = []
    if look.color_limits == "head":
        remarks.append("Each head has its own scale: compare heads by their numbers.")
    if look.color_scale == "log":
        remarks.append("The scale is logarithmic.")
    if any(panel.lift for panel in panels):
        remarks.append(LIFTED)
    clipped_panels = [panel for panel in panels if panel.scale.clipped]
    has_given_limits = not isinstance(look.color_limits, str)
    if clipped_panels and (has_given_limits or any(panel.lift for panel in clipped_panels)):
        levels = _visible_levels(clipped_panels)
        high = max(panel.scale.high for panel in clipped_panels)
        share = float(np.mean(levels > high))
        largest = clipped_panels[0].color_quantity.text(float(levels.max()))
        remarks.append(f"{_share_text(share)} of cells are above the scale, up to {largest}.")
    elif clipped_panels:  # only by rows with one key
        remarks.append(ONE_KEY)
    remarks += [*_faint_remarks(look, panels), *pool_remarks(look, panels)]
    weights = [panel for panel in panels if panel.quantity.is_weight and not panel.pooled]
    if weights and all((panel.visible.sum(axis=-1) == 1).all() for panel in weights):
        remarks.append(ONLY_ONE_KEY)
    return tuple(remarks)


def pool_remarks(look: Look, panels: Sequence[Panel]) -> tuple[str, ...]:
    """Returns a remark if ``pool`` is not the default although no panel is pooled; else empty.

    It names no option, so that a slide says it, too.
    """
    pools_nothing = look.pool != "mean" and panels and not any(panel.pooled for panel in panels)
    return ("Nothing is pooled: every cell is one weight.",) if pools_nothing else ()


def _faint_remarks(look: Look, panels: Sequence[Panel]) -> tuple[str, ...]:
    """Returns a remark if a share of at least `MIN_PALE_SHARE` of the weights is too pale to see."""
    weight_panels = [panel for panel in panels if panel.quantity.is_weight and not panel.lift and panel.values.size]
    if not weight_panels:
        return ()
    scale = weight_panels[0].scale
    pale_limit = float(scale.value(LOW_SHARE))
    levels = [_finite_numbers(panel.levels, panel.visible) for panel in weight_panels]
    cell_count = sum(panel_levels.size for panel_levels in levels)
    if cell_count < MIN_REMARKED_CELLS or any(panel.scale != scale for panel in weight_panels):
        return ()
    share = sum(int(np.count_nonzero(panel_levels < pale_limit)) for panel_levels in levels) / cell_count
    if share < MIN_PALE_SHARE:
        return ()
    better_scale = "log" if look.color_scale == "lift" else "lift"
    return (
        f"{_share_text(share)} of cells are below {weight_panels[0].color_quantity.text(pale_limit)}, too pale to see; "
        f"{option('color_scale', better_scale)} shows them.",
    )


def _share_text(share: float) -> str:
    """Returns a share in percent with at most two digits; it says 0.01 % for less and 99 % for more."""
    return f"{min(max(100 * share, 0.01), 99):.2g} %"
