"""Finds loops of a module over the texts of its batch, whose turns are other texts rather than further heads."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from attnviz.base.errors import AttnvizError
from attnviz.capture.flow.lineage import Piece
from attnviz.capture.flow.sites import CallSite
from attnviz.capture.runs import RunCounter


@dataclass(frozen=True)
class _Turn:
    """A turn of a loop over texts."""

    pieces: tuple[Piece, ...]
    site: CallSite
    calls: int = 1
    earlier_calls: int = 0

    @property
    def is_last(self) -> bool:
        """True if this turn reads the last texts of the batch."""
        return any(piece.is_last for piece in self.pieces)


class TextLoops:
    """Finds the texts of the calls of a module that reads its batch piece by piece."""

    def __init__(self, runs: RunCounter) -> None:
        self.runs = runs
        self.turns: dict[str, _Turn] = {}

    def with_turn(self, site: CallSite, pieces: Sequence[Piece], shape: tuple[int, int, int, int]) -> CallSite:
        """Returns the site of a call with its turn of the loop as the run; the site unchanged if there is no loop.

        A call on the pieces of the module's last turn belongs to that turn, and one on pieces that follow them begins
        the next turn. A call on the first piece begins a loop if it is the module's first call or the module's last
        loop has ended. Keeps the turn as the module's last one.

        Raises:
            AttnvizError: if the turns have different numbers of texts.
        """
        text_pieces = tuple(piece for piece in pieces if self._covers_texts(piece, site, shape))
        if not text_pieces or site.run or site.head is not None:
            return site
        last_turn = self.turns.get(site.module)
        begins_loop = any(piece.is_first for piece in text_pieces)
        if last_turn is not None and any(piece in last_turn.pieces for piece in text_pieces):
            turn = replace(last_turn, calls=last_turn.calls + 1)
        elif last_turn is not None and any(
            piece.is_followed_by(next_piece) for piece in last_turn.pieces for next_piece in text_pieces
        ):
            turn_number = _number_of_turn(text_pieces[0], site)
            turn = _Turn(text_pieces, replace(last_turn.site, run=turn_number), earlier_calls=last_turn.earlier_calls)
        elif begins_loop and not site.call:
            turn = _Turn(text_pieces, site)
        elif begins_loop and last_turn is not None and last_turn.is_last:
            turn = _Turn(text_pieces, site, earlier_calls=last_turn.earlier_calls + last_turn.calls)
        else:
            return site
        self.turns[site.module] = turn
        return replace(turn.site, call=turn.earlier_calls + turn.calls - 1)

    def has_further_texts(self, module: str) -> bool:
        """True if the module is in a loop over texts, and has not read the last of them; False without a loop."""
        turn = self.turns.get(module)
        return turn is not None and not turn.is_last

    def _covers_texts(self, piece: Piece, site: CallSite, shape: tuple[int, int, int, int]) -> bool:
        """True if the rows of a piece are the texts of a call, and not its queries."""
        texts, _, queries, keys = shape
        axis_size, batch_size = piece.whole[-1], self.runs.texts_of(site.module)
        if piece.rows != texts or piece.rows == axis_size:
            return False
        if batch_size is None or (axis_size, queries) in self.runs.second_axes_of(site.module):
            # The longer axis may be texts or tokens; in a loop over tokens, the second query would see two keys.
            return piece.rows != queries or (queries, keys) == (1, 1)
        return axis_size == batch_size


def _number_of_turn(piece: Piece, site: CallSite) -> int:
    """Returns the number of the turn that reads a piece of the batch, from 0: its start divided by its size."""
    turn_number, remainder = divmod(piece.start, piece.rows)
    if remainder:
        place = site.module or "the model itself"
        raise AttnvizError(
            f"layer {site.layer} ({place}) takes the texts of its batch in parts of different sizes; "
            "give a number of texts that it divides into equal parts"
        )
    return turn_number
