"""Says in one sentence which unit the last unit of a text looked at most: in a chat, which turn the answer did."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from attnviz.base.errors import AttnvizError, option
from attnviz.maps.grouped import refuse_missing_units
from attnviz.maps.heads import head_name
from attnviz.maps.layer_maps import LayerMaps
from attnviz.maps.recording import Recording
from attnviz.metrics.head_frame import HeadFrame
from attnviz.metrics.unit_shares import UnitShares, strongest_unit, unit_frame
from attnviz.text.named_groups import REMAINDER_LABELS, singular
from attnviz.text.selection import Grouping
from attnviz.text.tokens import first_words

MAX_QUOTED_CHARACTERS = 40  # of the unit's text
MAX_READ_CHARACTERS = 400


@dataclass(frozen=True, eq=False)
class _LastUnitSummary:
    """The units that the last unit of a text looked at.

    Attributes:
        sentence: names the unit that the last unit looked at most, and the head in which it did.
        frame: the numbers of each head.
    """

    sentence: str
    frame: HeadFrame


def summarize_last_unit(
    recordings: Sequence[Recording], heads: Iterable[tuple[LayerMaps, int]], grouping: Grouping
) -> _LastUnitSummary:
    """Returns the shares of the last unit's weight on earlier units in these heads, and a sentence on the strongest.

    Raises:
        AttnvizError: if there are several texts, no such units, pooled maps, or no unit before the last one.
    """
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
    return _LastUnitSummary(strongest_unit_sentence(shares, grouping.units), frame)


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
