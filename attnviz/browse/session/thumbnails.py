"""Whole heads in few cells, computed a slice at a time."""

from attnviz.browse.session.blocks import MAX_POOLED_CELLS, CellBlock, RefinedBlock, pooled
from attnviz.browse.session.cache import LruCache
from attnviz.browse.session.heads import InspectedHeads
from attnviz.browse.session.state import View

MAX_THUMBNAIL_CELLS = 1_000_000  # read for one slice of work between two keys
MAX_KEPT_VIEWS = 8  # of every head's thumbnail


class HeadThumbnails:
    """The thumbnails of the views that were looked at last."""

    def __init__(self, heads: InspectedHeads) -> None:
        self.heads = heads
        self._kept = LruCache[CellBlock | RefinedBlock](MAX_KEPT_VIEWS * heads.recorded)

    def find(self, head: int, view: View, pixels: int) -> CellBlock | None:
        """The whole head in at most ``pixels`` x ``pixels`` cells, as far as it has been computed."""
        found = self._kept.find((head, *pooled_key(view, pixels)))
        return found.cells if isinstance(found, RefinedBlock) else found

    def unfinished(self, heads: list[int], view: View, pixels: int) -> list[RefinedBlock]:
        """Those of these thumbnails that are still to be refined."""
        found = (self._kept.find((head, *pooled_key(view, pixels))) for head in heads)
        return [each for each in found if isinstance(each, RefinedBlock) and not each.finished]

    def compute(self, heads: list[int], view: View, pixels: int) -> list[int]:
        """Computes one slice of the thumbnails of these heads, and returns those of the slice."""
        key = pooled_key(view, pixels)
        missing = [head for head in heads if (head, *key) not in self._kept]
        if not missing:
            return []
        maps = self.heads.heads[missing[0]][0]
        whole = slice(0, len(maps.query_tokens)), slice(0, len(maps.key_tokens))
        if whole[0].stop * whole[1].stop > MAX_POOLED_CELLS:
            block = RefinedBlock(self.heads.inspected(missing[0]), view, *whole, pixels, pixels)
            self._kept.keep((missing[0], *key), block)
            return missing[:1]
        most = max(1, MAX_THUMBNAIL_CELLS // (whole[0].stop * whole[1].stop))
        batch = [head for head in missing if self.heads.heads[head][0] is maps][:most]
        cells = pooled([self.heads.inspected(head) for head in batch], view, *whole, pixels, pixels)
        for head, each in zip(batch, cells, strict=True):
            self._kept.keep((head, *key), each)
        return batch


def pooled_key(view: View, *rest: int) -> tuple[object, ...]:
    """What of a view, and of numbers beside it, makes pooled cells others."""
    return view.scores, view.difference, view.mean, *rest
