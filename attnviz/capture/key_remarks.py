"""Says which keys of a recording a reader would not expect: sinks, keys of another layer, keys that a top-k chose."""

from collections.abc import Iterator, Sequence

import numpy as np

from attnviz.base.errors import layers_phrase
from attnviz.capture.assembly.captured_call import CapturedCall, position_of_queries
from attnviz.maps.dense import DenseMaps
from attnviz.maps.layer_maps import LayerMaps, cell_maps
from attnviz.text.tokens import SINK_LABEL, keys_without_token


def remarks_on_keys(calls: Sequence[CapturedCall], maps: Sequence[LayerMaps]) -> Iterator[str]:
    """Yields a sentence on each kind of such keys, with the layers that have them."""
    yield from _remarks_on_sinks(maps)
    yield from _remarks_on_extra_keys(calls)
    yield from _remarks_on_shared_keys(calls)
    yield from _remarks_on_selection(calls)


def _remarks_on_extra_keys(calls: Sequence[CapturedCall]) -> Iterator[str]:
    """Yields a sentence on the layers that add keys of their own to those of the text, for each kind of these."""
    layers: dict[tuple[str, ...], set[int]] = {}
    for call in calls:
        if call.extra_keys:
            layers.setdefault(call.extra_keys, set()).add(call.site.layer)
    for labels, of_labels in layers.items():
        names = " and ".join(f"“{label}”" for label in labels)
        subject, them = (f"keys {names} have", "them") if len(labels) > 1 else (f"key {names} has", "it")
        yield (
            f"In {layers_phrase(of_labels)} the {subject} no token: the module adds {them} to those of the text. "
            "Metrics count the tokens alone."
        )


def _remarks_on_shared_keys(calls: Sequence[CapturedCall]) -> Iterator[str]:
    """Yields a sentence on the layers that read the keys of another layer, for each of these."""
    readers: dict[int, set[int]] = {}
    for call in calls:
        if call.key_layer is not None:
            readers.setdefault(call.key_layer, set()).add(call.site.layer)
    for layer, layers in readers.items():
        verb = "reads" if len(layers) == 1 else "read"
        yield f"{layers_phrase(layers).capitalize()} {verb} the keys of layer {layer}."


def _remarks_on_selection(calls: Sequence[CapturedCall]) -> Iterator[str]:
    """Yields a sentence on the layers in which a top-k chooses keys, with how many of them a query sees."""
    layers: set[int] = set()
    seen_counts, all_counts, are_causal = [], [], True
    for call in calls:
        if not call.selects or call.map_type is not DenseMaps:
            continue
        layers.add(call.site.layer)
        _, _, queries, keys = call.shape
        for item, fields in enumerate(call.fields):
            visible = fields["visible"].reshape(-1, queries, keys)
            own_keys = np.arange(queries) + position_of_queries(call, item)
            is_causal = call.site.kind == "self" and not (visible & (np.arange(keys) > own_keys[:, None])).any()
            are_causal &= is_causal
            counts = visible.sum(axis=-1)
            seen_counts.append(counts[counts > 0])
            all_counts.append(np.broadcast_to(own_keys + 1 if is_causal else keys, counts.shape)[counts > 0])
    if not layers:
        return
    seen, of_all = (float(np.concatenate(counts).mean()) for counts in (seen_counts, all_counts))
    if seen < of_all:
        yield (
            f"In {layers_phrase(layers)} a top-k chooses the keys: a query sees {seen:.3g} of the {of_all:.3g} "
            f"keys{' up to it' if are_causal else ''}, on average; those that it does not choose are drawn as masked."
        )


def _remarks_on_sinks(all_maps: Sequence[LayerMaps]) -> Iterator[str]:
    """Yields a sentence on the layers whose last key is a sink, with its share of all weight."""
    maps_with_sink = [
        maps for maps in all_maps if keys_without_token(maps.key_tokens) and maps.key_tokens.labels[-1] == SINK_LABEL
    ]
    if not maps_with_sink:
        return
    shares: dict[str, list[float]] = {}  # of the sink in each text, by head
    for maps in maps_with_sink:
        last_key = slice(len(maps.key_tokens) - 1, len(maps.key_tokens))
        column = cell_maps(maps).window(maps.heads, slice(0, len(maps.query_tokens)), last_key).weights
        for head, share in zip(maps.heads, column.mean(axis=(1, 2)).tolist(), strict=True):
            shares.setdefault(f"{maps.layer}.{head}", []).append(share)
    means = {head: sum(of_texts) / len(of_texts) for head, of_texts in shares.items()}
    least, most = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
    share_text = f"{sum(means.values()) / len(means):.0%} of all weight"
    if least != most:
        share_text += f" (from {means[least]:.0%} in {least} to {means[most]:.0%} in {most})"
    layers = layers_phrase({maps.layer for maps in maps_with_sink})
    yield (
        f"In {layers} the key “{SINK_LABEL}” has no token: a score in the softmax takes a share of each row, "
        f"{share_text}. Metrics count the tokens alone."
    )
