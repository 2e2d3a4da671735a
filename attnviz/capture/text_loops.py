"""Loops of a module over the texts of its batch: each turn's calls are of texts of their own, and no further heads."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from attnviz.base.errors import AttnvizError
from attnviz.capture.flow.lineage import Piece
from attnviz.capture.flow.sites import CallSite
from attnviz.capture.runs import RunCounter


@dataclass(frozen=True)
class _Turn:
    """A turn of a loop.

    Attributes:
        pieces: which texts of longer tensors its queries may be.
        site: of its first call.
        calls: how many it has made.
    """

    pieces: tuple[Piece, ...]
    site: CallSite
    calls: int = 1


class TextLoops:
    """Finds the texts of calls whose queries are a piece of the batch, from which the last turn took the one before.

    Args:
        runs: tells how many texts the model was given.
    """

    def __init__(self, runs: RunCounter) -> None:
        self.runs = runs
        self.turns: dict[str, _Turn] = {}

    def placed(self, site: CallSite, pieces: Sequence[Piece], shape: tuple[int, int, int, int]) -> CallSite:
        """Returns the site of a call, its run the turn of the loop that made it; of others the site as it is.

        Args:
            site: as the module's calls were counted.
            pieces: which rows of longer tensors the queries are.
            shape: of the call: texts, heads, queries, keys.

        Raises:
            AttnvizError: if the turns are of different numbers of texts.
        """
        found = tuple(piece for piece in pieces if self._is_of_texts(piece, site, shape))
        if not found or site.run or site.head is not None:
            return site
        turn = self.turns.get(site.module)
        if turn is not None and any(piece in turn.pieces for piece in found):
            turn = replace(turn, calls=turn.calls + 1)
        elif turn is not None and any(last.is_followed_by(piece) for last in turn.pieces for piece in found):
            turn = _Turn(found, replace(turn.site, run=_number_of_turn(found[0], site)))
        elif not site.call and any(piece.is_first for piece in found):
            turn = _Turn(found, site)
        else:
            return site
        self.turns[site.module] = turn
        return replace(turn.site, call=turn.calls - 1)

    def go_on(self, module: str) -> bool:
        """True if a loop of the module has further texts to come."""
        turn = self.turns.get(module)
        return turn is not None and not any(piece.is_last for piece in turn.pieces)

    def _is_of_texts(self, piece: Piece, site: CallSite, shape: tuple[int, int, int, int]) -> bool:
        """True if the rows of a piece are the texts of a call, and not its queries."""
        texts = self.runs.texts_of(site.module)
        if piece.rows != shape[0] or piece.rows == piece.whole[-1]:
            return False
        return piece.whole[-1] == texts if texts is not None else piece.rows != shape[2]


def _number_of_turn(piece: Piece, site: CallSite) -> int:
    turn, rest = divmod(piece.start, piece.rows)
    if rest:
        place = site.module or "the model itself"
        raise AttnvizError(
            f"layer {site.layer} ({place}) takes the texts of its batch in parts of different sizes; use a batch that "
            "it takes in equal parts"
        )
    return turn
