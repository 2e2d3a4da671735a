"""Lists the sets of heads to ablate: single heads, named sets and pairs."""

from collections.abc import Iterable, Sequence
from itertools import combinations

from attnviz.base.errors import AttnvizError, number_ranges, option
from attnviz.metrics.head_frame import HeadSet
from attnviz.text.head_name import HeadName, KnownHead, parse_head_name
from attnviz.text.selection import Selection, refuse_unknown_part

MAX_PAIRS = 2000


def chosen_sets(
    model_heads: Sequence[KnownHead], heads: Iterable[str] | Selection | None, sets: Iterable[str] | None, pairs: bool
) -> list[HeadSet]:
    """Returns the sets of heads to ablate: single heads, then named sets, then pairs, without duplicates.

    Raises:
        AttnvizError: for no heads, an unknown head or layer, or more than `MAX_PAIRS` pairs.
    """
    selected_heads = _selected_heads(model_heads, heads)
    named_sets = [_heads_of_set(name, model_heads) for name in sets or ()]
    ablates_single_heads = heads is not None or not named_sets
    single_sets: list[HeadSet] = [(head,) for head in selected_heads] if ablates_single_heads else []
    pair_sets: list[HeadSet] = [tuple(sorted(pair)) for pair in combinations(selected_heads, 2)] if pairs else []
    if len(pair_sets) > MAX_PAIRS:
        raise AttnvizError(
            f"{len(selected_heads)} heads make {len(pair_sets)} pairs, and at most {MAX_PAIRS} are run; choose fewer "
            f"heads with {option('heads', '0.1,2.3')} or {option('layers', '0-1')}"
        )
    if not single_sets and not named_sets:
        raise AttnvizError(f"no heads to remove; give at least one, as in {option('heads', '0.1')}")
    return list(dict.fromkeys((*single_sets, *named_sets, *pair_sets)))


def _selected_heads(model_heads: Sequence[KnownHead], heads: Iterable[str] | Selection | None) -> list[HeadName]:
    """Returns the selected heads: names in their order, a `Selection` in the model's order; all for ``None``."""
    if heads is not None and not isinstance(heads, Selection):
        return [_named_head(name, model_heads) for name in heads]
    places = range(len(model_heads)) if heads is None else sorted(heads.places_in(model_heads))
    return [_name(model_heads[place]) for place in places]


def _name(head: KnownHead) -> HeadName:
    return HeadName(head.layer, head.head, head.part)


def _named_head(text: str, model_heads: Sequence[KnownHead]) -> HeadName:
    """Returns the head with a name such as ``0.1``; raises AttnvizError if there is none, or several."""
    name = parse_head_name(text)
    if name is None or name[:2] not in {(head.layer, head.head) for head in model_heads}:
        layers = number_ranges({head.layer for head in model_heads})
        numbers = number_ranges({head.head for head in model_heads})
        raise AttnvizError(
            f"no head {text!r}; layers {layers} have heads {numbers}; choose one such as {model_heads[-1].name}"
        )
    [place] = Selection(pairs=(name,)).places_in(model_heads)
    return _name(model_heads[place])


def _heads_of_set(name: str, model_heads: Sequence[KnownHead]) -> HeadSet:
    """Returns the heads of a set such as ``0.1+2.3``; a layer, such as ``2`` or ``encoder:2``, stands for its heads."""
    heads: list[HeadName] = []
    for item in name.split("+"):
        part, _, layer = item.strip().rpartition(":")
        layer_heads = [head for head in model_heads if layer == str(head.layer)]
        fitting_heads = [head for head in layer_heads if head.fits(part)]
        if layer_heads and not fitting_heads:
            refuse_unknown_part(item.strip(), layer_heads)
        heads += map(_name, fitting_heads) if fitting_heads else [_named_head(item, model_heads)]
    return tuple(sorted(set(heads)))
