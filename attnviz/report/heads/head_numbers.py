"""Reads and adds the numbers beside a head's maps: metrics, effects, norms, and what the last unit of a text saw."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from attnviz.base.errors import AttnvizError, option
from attnviz.maps.grouped import refuse_missing_units
from attnviz.maps.layer_maps import LayerMaps, cell_maps
from attnviz.maps.recording import Recording, head_name, heads_with_cells
from attnviz.metrics.call_metrics import block_stride, measured_frame
from attnviz.metrics.head_frame import HeadFrame
from attnviz.metrics.measure import Measure
from attnviz.metrics.unit_shares import UnitShares, strongest_unit, unit_frame
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.report import ExactNumbers, HeadCells
from attnviz.report.words.notes import names_of, notes_of
from attnviz.text.named_groups import REMAINDER_LABELS, singular
from attnviz.text.selection import Grouping
from attnviz.text.tokens import first_words

if TYPE_CHECKING:
    from attnviz.effects.effect_table import Effects

MOVED = Measure("moved", "moved", "norm", "sum of a row's contributions ‖α f(x)‖")
MAX_MEASURED_CELLS = 50_000_000  # over all heads: about a second; above it, only some blocks of queries are measured
MAX_QUOTED_CHARACTERS = 40  # of the unit's text
MAX_READ_CHARACTERS = 400


def effect_remark(effects: "Effects") -> str:
    """Returns a remark that names the model and text of the effects, and says that they come from an intervention."""
    texts = f"{effects.texts} texts" if effects.texts > 1 else repr(" ".join(effects.title.split()))
    return f"Effects are from {effects.model} on {texts}, with heads replaced by {effects.by}: an intervention."


def read_effects(file: str, heads: set[str]) -> "Effects":
    """Loads the effects from a file, which must have the effect of at least one of these heads."""
    effects = load_effects(file)
    refuse_other_heads(effects, file, heads)
    return effects


def load_effects(file: str) -> "Effects":
    """Loads the effects from a file."""
    from attnviz.effects.effect_table import Effects

    return Effects.load(Path(file))


def refuse_other_heads(effects: "Effects", file: str, heads: set[str]) -> None:
    """Raises AttnvizError if the table has no effect of any of these heads removed alone."""
    single_heads = [row.name for row in effects.rows if len(row.heads) == 1]
    if heads.isdisjoint(single_heads):
        examples = ", ".join(single_heads[:3]) or "sets of heads"
        raise AttnvizError(
            f"{option('effects', file)} has effects of {examples}, but of none of the heads shown; measure the heads "
            "shown with attnviz ablate"
        )


def shown_metrics(heads: Sequence[HeadCells]) -> HeadFrame | None:
    """Returns the metrics of all heads, and the norms of what they move if known; ``None`` if there are no metrics."""
    cell_heads = heads_with_cells(heads)
    if len(cell_heads) < len(heads):
        return None
    frame = measured_frame(cell_heads, stride=block_stride(cell_heads, MAX_MEASURED_CELLS))
    if not frame.applicable:
        return None
    frame = frame.select(measure.name for measure in frame.applicable)

    # What each head moves is one more column, if it is known and soon measured.
    cell_count = sum((head.queries.stop - head.queries.start) * (head.keys.stop - head.keys.start) for head in heads)
    if cell_count > MAX_MEASURED_CELLS or any(head.maps.value_norms is None for head in heads):
        return frame
    from attnviz.maps.derived import contribution_maps, mean_contribution

    maps_by_id = {id(head.maps): head.maps for head in heads}
    contributions = {
        key: maps if maps.quantity == "contribution" else contribution_maps(maps) for key, maps in maps_by_id.items()
    }
    norms = [
        [mean_contribution(cell_maps(contributions[id(head.maps)]), head.head, head.queries, head.keys)]
        for head in heads
    ]
    return frame.with_columns((MOVED,), np.array(norms))


def with_page_numbers(report: ExactNumbers, options: ReportOptions) -> ExactNumbers:
    """Returns the report with the metrics, effects, notes and names that a page shows; unchanged for other media.

    A report that already has a frame of its heads' numbers keeps that frame instead of metrics.
    """
    if not options.medium.sorts_heads:
        return report
    file, heads = report.look.effects, report.heads
    effects = None if file is None else read_effects(file, {head.maps.known_head(head.head).name for head in heads})
    frame = report.frame or shown_metrics(heads)
    if frame is not None and effects is not None:
        frame = frame.with_columns_of(effects.frame)
    return replace(
        report,
        frame=frame,
        effects="" if effects is None else effect_remark(effects),
        notes=tuple(notes_of(report.look)),
        given_names=names_of(report.look),
    )


def summarize_last_unit(
    recordings: Sequence[Recording], heads: Iterable[tuple[LayerMaps, int]], grouping: Grouping
) -> tuple[str, HeadFrame]:
    """Returns a sentence on the unit that the last one looked at most, and its weight on earlier units by head."""
    by_option = option("by", grouping.units)
    maps = [layer_maps for recording in recordings for layer_maps in recording.maps]
    if len(recordings) > 1 or len({layer_maps.item for layer_maps in maps}) > 1:
        raise AttnvizError(f"{by_option} needs a single text, since units differ between texts; give one text")
    refuse_missing_units(maps, grouping)
    frame, shares = unit_frame(heads, grouping.units)
    if not shares:
        raise AttnvizError(
            f"{by_option} needs single cells and two {grouping.units} or more: it shows what the last one looks at"
        )
    return strongest_unit_sentence(shares, grouping.units), frame


def strongest_unit_sentence(shares: Sequence[UnitShares], by: str) -> str:
    """Returns a sentence on the earlier unit that the last unit looked at most.

    It is the unit with the largest share times logarithm of lift. The lift is the share divided by an even share of the
    keys. If no unit has a lift above 1, the sentence says so.
    """
    strongest_match = strongest_unit(shares)
    last_label = shares[0].last_label
    last_unit = last_label if shares[0].last_by in REMAINDER_LABELS else f"“{last_label}”"
    if strongest_match is None:
        return f"{last_unit} gave no {singular(by)} more than an even share of its weight."
    unit_shares, head, unit = strongest_match
    tokens, span = unit_shares.maps.key_tokens, unit_shares.spans[unit]
    start, stop = int(tokens.offsets[span.start, 0]), int(tokens.offsets[span.stop - 1, 1])
    text = first_words(
        tokens.text[start:stop][:MAX_READ_CHARACTERS], MAX_QUOTED_CHARACTERS
    )  # "" for tokens without one
    quotation = f"“{text or unit_shares.labels[unit]}”"
    unit_text = f"{unit_shares.labels[unit]}, {quotation}" if by in REMAINDER_LABELS else quotation
    share, lift = unit_shares.shares[head, unit], unit_shares.lift[head, unit]
    head_text = head_name(unit_shares.maps, unit_shares.heads[head])
    numbers = f"{share:.0%} of its weight in head {head_text}, {lift:.1f} times an even share"
    return f"{last_unit} looked most at {unit_text}: {numbers}."
