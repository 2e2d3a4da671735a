"""Computes thumbnails, whole heads in few cells, a slice at a time."""

from attnviz.browse.session.blocks import MAX_POOLED_CELLS, CellBlock, RefinedBlock, pooled_blocks
from attnviz.browse.session.cache import LruCache
from attnviz.browse.session.heads import InspectedHeads
from attnviz.browse.session.state import View

MAX_THUMBNAIL_CELLS = 1_000_000  # cells that are read in one slice of work between two keys
MAX_KEPT_VIEWS = 8  # thumbnails per head in the cache


class HeadThumbnails:
    """The thumbnails of all heads, with a cache of the latest views."""

    def __init__(self, heads: InspectedHeads) -> None:
        self.heads = heads
        self._kept = LruCache[CellBlock | RefinedBlock](MAX_KEPT_VIEWS * heads.recorded)

    def find(self, head: int, view: View, pixels: int) -> CellBlock | None:
        """Returns the thumbnail of a head, maybe a preview; ``None`` if it is not computed yet.

        Args:
            head: the head.
            view: the toggles.
            pixels: the most cells along a side.
        """
        found = self._kept.find((head, *pooled_key(view, pixels)))
        return found.cells if isinstance(found, RefinedBlock) else found

    def unfinished(self, heads: list[int], view: View, pixels: int) -> list[RefinedBlock]:
        """Returns the thumbnails of some heads that are still to be refined.

        Args:
            heads: the heads.
            view: the toggles.
            pixels: the most cells along a side.
        """
        found = (self._kept.find((head, *pooled_key(view, pixels))) for head in heads)
        return [each for each in found if isinstance(each, RefinedBlock) and not each.finished]

    def compute(self, heads: list[int], view: View, pixels: int) -> list[int]:
        """Computes thumbnails of some heads, as many as one slice of work allows.

        Args:
            heads: the heads, in the order in which they are computed.
            view: the toggles.
            pixels: the most cells along a side.

        Returns:
            The heads whose thumbnails were computed now.
        """
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
        cells = pooled_blocks([self.heads.inspected(head) for head in batch], view, *whole, pixels, pixels)
        for head, each in zip(batch, cells, strict=True):
            self._kept.keep((head, *key), each)
        return batch


def pooled_key(view: View, *rest: int) -> tuple[object, ...]:
    """Returns a cache key: the toggles that change pooled cells, and ``rest``."""
    return view.scores, view.difference, view.mean, *rest
