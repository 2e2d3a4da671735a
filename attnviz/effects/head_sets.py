"""Lists the sets of heads to ablate: single heads, named sets and pairs."""

from collections.abc import Iterable, Sequence
from itertools import combinations

from attnviz.base.errors import AttnvizError, number_ranges, option
from attnviz.effects.effect_table import HEAD
from attnviz.effects.head_sites import HeadName
from attnviz.metrics.head_frame import HeadSet
from attnviz.text.selection import Selection, refuse_missing

MAX_PAIRS = 2000


def chosen_sets(
    known: list[HeadName], heads: Iterable[str] | Selection | None, sets: Iterable[str] | None, pairs: bool
) -> list[HeadSet]:
    """Returns the sets of heads to ablate: single heads, then named sets, then pairs, without duplicates.

    Args:
        known: all heads of the model.
        heads: the heads to ablate one by one; ``None`` for all, or for none if ``sets`` are named.
        sets: the names of more sets, as ``0.1+2.3``, or ``2`` for layer 2.
        pairs: True to add every pair of the single heads.

    Raises:
        AttnvizError: for an unknown head, or more than `MAX_PAIRS` pairs.
    """
    single = _single(known, heads)
    named = [_set(name, known) for name in sets or ()]
    singles: list[HeadSet] = [(head,) for head in single] if heads is not None or not named else []
    pair_sets: list[HeadSet] = [tuple(sorted(pair)) for pair in combinations(single, 2)] if pairs else []
    if len(pair_sets) > MAX_PAIRS:
        raise AttnvizError(
            f"{len(single)} heads make {len(pair_sets)} pairs, and at most {MAX_PAIRS} are run; choose fewer heads "
            f"with {option('heads', '0.1,2.3')} or {option('layers', '0-1')}"
        )
    return list(dict.fromkeys((*singles, *named, *pair_sets)))


def _single(known: list[HeadName], heads: Iterable[str] | Selection | None) -> list[HeadName]:
    """Returns the heads that the user selected; all if nothing was selected."""
    if heads is None:
        return known
    if not isinstance(heads, Selection):
        return [_head(name, known) for name in heads]
    layers = sorted({layer for layer, _ in known})
    refuse_missing(heads.chosen_layers, layers, "layer")
    for layer in heads.chosen_layers or layers:
        refuse_missing(heads.heads_of(layer), [head for own, head in known if own == layer], f"head in layer {layer}:")
    return [
        (layer, head)
        for layer, head in known
        if layer in (heads.chosen_layers or layers) and head in (heads.heads_of(layer) or (head,))
    ]


def _head(name: str, known: Sequence[HeadName]) -> HeadName:
    written = HEAD.fullmatch(name.strip())
    found = None if written is None else (int(written[1]), int(written[2]))
    if found is None or found not in known:
        layers = number_ranges({layer for layer, _ in known})
        counts = number_ranges({head for _, head in known})
        raise AttnvizError(
            f"no head {name!r}; layers {layers} have heads {counts}; choose one as {known[-1][0]}.{known[-1][1]}"
        )
    return found


def _set(name: str, known: Sequence[HeadName]) -> HeadSet:
    """Returns the heads of a set such as ``0.1+2.3``; a layer's number, as ``2``, stands for all its heads."""
    heads: list[HeadName] = []
    for part in name.split("+"):
        of_layer = [head for head in known if part.strip() == str(head[0])]
        heads += of_layer or [_head(part, known)]
    return tuple(sorted(set(heads)))
