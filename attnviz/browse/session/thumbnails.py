"""Computes thumbnails, whole heads in few cells, in short slices of work."""

from attnviz.browse.session.blocks import MAX_POOLED_CELLS, CellBlock, RefinedBlock, pooled_blocks
from attnviz.browse.session.cache import LruCache
from attnviz.browse.session.heads import InspectedHeads
from attnviz.browse.session.state import View
from attnviz.media.sound import Sound
from attnviz.text.tokens import Tokens

MAX_THUMBNAIL_CELLS = 1_000_000  # pairs of tokens that are read in one slice of work
MAX_KEPT_VIEWS = 8  # views of which the cache keeps a thumbnail of every head


class HeadThumbnails:
    """Computes thumbnails of all heads, and caches those of the latest views."""

    def __init__(self, heads: InspectedHeads) -> None:
        self.heads = heads
        self._cache = LruCache[CellBlock | RefinedBlock](MAX_KEPT_VIEWS * heads.recorded_count)

    def find(self, head: int, view: View, pixels: int) -> CellBlock | None:
        """Returns the cached thumbnail of a head, which may be a preview; ``None`` if it is not computed yet."""
        thumbnail = self._cache.find((head, *pooled_key(view, pixels)))
        return thumbnail.cells if isinstance(thumbnail, RefinedBlock) else thumbnail

    def unfinished_blocks(self, heads: list[int], view: View, pixels: int) -> list[RefinedBlock]:
        """Returns the previews among the cached thumbnails of some heads that are not refined yet."""
        thumbnails = (self._cache.find((head, *pooled_key(view, pixels))) for head in heads)
        return [
            thumbnail for thumbnail in thumbnails if isinstance(thumbnail, RefinedBlock) and not thumbnail.is_finished
        ]

    def compute(self, heads: list[int], view: View, pixels: int) -> list[int]:
        """Computes and caches missing thumbnails: the first one, and others of its attention call if its map is short.

        The thumbnail of a long map begins as a preview, which is refined later.

        Returns:
            The heads whose thumbnails were computed now; empty if none was missing.
        """
        key = pooled_key(view, pixels)
        missing = [head for head in heads if (head, *key) not in self._cache]
        if not missing:
            return []
        maps = self.heads.heads[missing[0]][0]
        spans = _drawn_span(maps.query_tokens), _drawn_span(maps.key_tokens)
        queries, keys = (span.stop - span.start for span in spans)
        if queries * keys > MAX_POOLED_CELLS:
            block = RefinedBlock(self.heads.inspected_head(missing[0]), view, *spans, pixels, pixels)
            self._cache.keep((missing[0], *key), block)
            return missing[:1]
        batch_size = max(1, MAX_THUMBNAIL_CELLS // (queries * keys))
        batch = [head for head in missing if self.heads.heads[head][0] is maps][:batch_size]
        thumbnails = pooled_blocks([self.heads.inspected_head(head) for head in batch], view, *spans, pixels, pixels)
        for head, thumbnail in zip(batch, thumbnails, strict=True):
            self._cache.keep((head, *key), thumbnail)
        return batch


def _drawn_span(tokens: Tokens) -> slice:
    """Returns the span of the tokens that a thumbnail draws: all tokens, or the frames until the end of a sound."""
    return tokens.unpadded if isinstance(tokens.canvas, Sound) else slice(0, len(tokens))


def pooled_key(view: View, *extra: int) -> tuple[object, ...]:
    """Returns a cache key: the toggles that change pooled cells, then the numbers of ``extra``."""
    return view.scores, view.difference, view.mean, *extra
