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
    model_heads: list[HeadName], heads: Iterable[str] | Selection | None, sets: Iterable[str] | None, pairs: bool
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


def _selected_heads(model_heads: list[HeadName], heads: Iterable[str] | Selection | None) -> list[HeadName]:
    """Returns the selected heads: names in their order, a `Selection` in the model's order; all for ``None``."""
    if heads is None:
        return model_heads
    if not isinstance(heads, Selection):
        return [_named_head(name, model_heads) for name in heads]
    model_layers = sorted({layer for layer, _ in model_heads})
    refuse_missing(heads.chosen_layers, model_layers, "layer")
    heads_by_layer: dict[int, Sequence[int]] = {}
    for layer in heads.chosen_layers or model_layers:
        layer_heads = [head for head_layer, head in model_heads if head_layer == layer]
        refuse_missing(heads.heads_of(layer), layer_heads, f"head in layer {layer}:")
        heads_by_layer[layer] = heads.heads_of(layer) or layer_heads
    return [(layer, head) for layer, head in model_heads if head in heads_by_layer.get(layer, ())]


def _named_head(name: str, model_heads: Sequence[HeadName]) -> HeadName:
    """Returns layer and number of the head with a name such as ``0.1``; raises AttnvizError if there is none."""
    match = HEAD.fullmatch(name.strip())
    head_name = None if match is None else (int(match[1]), int(match[2]))
    if head_name is None or head_name not in model_heads:
        layers = number_ranges({layer for layer, _ in model_heads})
        numbers = number_ranges({head for _, head in model_heads})
        last_layer, last_head = model_heads[-1]
        raise AttnvizError(
            f"no head {name!r}; layers {layers} have heads {numbers}; choose one such as {last_layer}.{last_head}"
        )
    return head_name


def _heads_of_set(name: str, model_heads: Sequence[HeadName]) -> HeadSet:
    """Returns the heads of a set such as ``0.1+2.3``; a layer's number, such as ``2``, stands for all its heads."""
    heads: list[HeadName] = []
    for part in name.split("+"):
        layer_heads = [head for head in model_heads if part.strip() == str(head[0])]
        heads += layer_heads or [_named_head(part, model_heads)]
    return tuple(sorted(set(heads)))
