"""Turns the attention calls of a model into a recording, with its remarks, or refuses if something is missing."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from torch import nn

from attnviz.base.errors import AttnvizError, layers_phrase, number_ranges, option, or_list
from attnviz.capture.assembly.captured_call import CapturedCall, maps_of, position_of_queries
from attnviz.capture.assembly.output_path import quantized_part
from attnviz.capture.assembly.texts import TextCollector
from attnviz.capture.assembly.windows import window_remarks
from attnviz.capture.flow.sites import CallSite, ModuleIndex
from attnviz.capture.hooks.library_functions import calls_recurrences
from attnviz.capture.hooks.observing_mode import anything_compiled, unobserved_modules
from attnviz.capture.hooks.torch_functions import UNUSED, OtherResult
from attnviz.capture.labels import CaptureOptions, GivenLabels, without_foreign_ids
from attnviz.capture.model_calls import RunCounter, name_of
from attnviz.maps.cell_maps import DenseMaps
from attnviz.maps.layer_maps import LayerMaps, cell_maps
from attnviz.maps.recording import Recording
from attnviz.text.selection import IMPLICIT, AttentionPart, refuse_missing
from attnviz.text.tokens import SINK_LABEL, keys_without_token
from attnviz.version import __version__

# A module of such a class is mentioned, such as deformable attention; others only if nothing else was found.
ATTENTION_CLASS = re.compile("attention|attn", re.IGNORECASE)
IMPLICIT_REMARK = (
    "Implicit attention: the numbers of either sign by which a linear layer's recurrence sums the values of earlier "
    "tokens. They are no weights of a softmax, and rows have no fixed sum; metrics are of the shares of their sizes."
)


@dataclass(frozen=True, eq=False)
class RecordingBuilder:
    """Builds the recording of one or several forward passes from what was found in them."""

    model: nn.Module  # the model
    modules: ModuleIndex  # the modules of the model
    options: CaptureOptions  # the choice of calls to record
    runs: RunCounter  # the forward passes of the model
    # The number of heads of each layer up to each call; 0 if they were not looked at
    head_counts: Mapping[CallSite, int]
    texts: TextCollector  # the chosen calls
    other_results: Sequence[OtherResult]  # the results that are no maps of queries and keys
    parts: Collection[AttentionPart]  # the attention of an encoder-decoder that the model has
    unreadable_tensors: Mapping[str, str]  # the kind of tensors that could not be read, by module
    silent_layers: Mapping[int, str]  # what layers without attention compute, by number
    unread_recurrences: Mapping[str, str]  # why the recurrence of a linear layer is not read, by module

    def recording(self) -> Recording:
        """Returns the recording of all modules whose attention is only softmaxes over queries x keys."""
        calls, selection = self.calls, self.options.selection
        chosen_layers = selection.chosen_layers

        # What is asked for and is not there
        others = [
            other
            for other in self._other_attention
            if (chosen_layers is None or other.layer in (None, *chosen_layers))
            and other.layer not in self.silent_layers  # whose routers of experts have a softmax, too
        ]
        has_all_layers = bool(calls) and set(chosen_layers or ()) <= {call.site.layer for call in calls}
        if others and not has_all_layers:
            module, layer = others[0].module or "the model itself", others[0].layer
            place = module if layer is None else f"layer {layer} ({module})"
            raise AttnvizError(
                f"{place} computes no softmax over queries x keys, but {others[0].description}; "
                "choose layers with full attention, or give weights that the module returns to attnviz.from_arrays"
            )
        if self.options.attention == IMPLICIT:
            self._refuse_no_recurrence()
        self._refuse_no_call()
        layers = tuple(sorted({site.layer for site in self.head_counts}))
        refuse_missing(chosen_layers, layers, "layer", self.silent_layers)
        for layer in chosen_layers or layers:
            count = max(count for site, count in self.head_counts.items() if site.layer == layer)
            refuse_missing(selection.heads_of(layer), tuple(range(count)), f"head in layer {layer}:")
        for call in calls if self.options.values else ():
            if not all("value_norms" in call.fields_of(item) for item in range(len(call.fields))):
                reason = (
                    "no observed linear map takes its attention output" if call.norms is None else call.norms.refusal
                )
                if call.windows > 1 and (call.norms is None or call.norms.texts is None):
                    reason = "it attends within windows, whose keys are projected window by window"
                reason = quantized_part(self.model, call.site.module) or reason
                raise AttnvizError(
                    f"layer {call.site.layer} ({call.site.module or 'the model itself'}) has no contributions: "
                    f"{reason}; show its weights instead"
                )

        calls = without_foreign_ids(calls)

        # The calls of which one `LayerMaps` per text is made, by their first text
        groups: dict[tuple[object, ...], dict[int, list[CapturedCall]]] = {}
        for call in calls:
            site = call.site
            own_site = site if site.head is None else None  # heads that are separate modules share a key
            key = (site.stack, site.kind, site.layer, own_site)
            groups.setdefault(key, {}).setdefault(call.first_item, []).append(call)
        has_decoder = {"cross", "decoder"}.issubset(self.parts) and self.options.attention != "encoder"
        labels = GivenLabels(self.options.tokens, self.options.context, calls, has_decoder)
        maps: list[LayerMaps] = []
        for layer_calls in (group for batches in groups.values() for group in batches.values()):
            for item in range(layer_calls[0].shape[0]):
                queries, keys = labels.tokens_of(layer_calls[0], item)
                maps.append(maps_of(layer_calls, item, queries, keys))

        # The recording, with a remark on all that a reader of its maps must know
        dtype = next((str(weight.dtype).removeprefix("torch.") for weight in self.model.parameters()), "float32")
        label_remarks = tuple(labels.remarks())
        return Recording(
            maps=tuple(maps),
            model=name_of(self.model),
            settings={"dtype": dtype},
            version=__version__,
            silent_layers=self.silent_layers if chosen_layers is None else {},
            advice=tuple(labels.advice_on_pictures()),
            unused_labels=tuple(labels.unused),
            remarks=(
                *self.texts.remarks(),
                *label_remarks,
                *(self._implicit_remarks() if self.options.attention == IMPLICIT else ()),
                *self._remarks_on_missing(),
                *_remarks_on_calls(calls),
                *remarks_on_keys(calls, maps),
                *_remarks_on_blocks(maps),
                *window_remarks(calls, self.runs.texts_of),
            ),
        )

    @property
    def _name(self) -> str:
        return type(self.model).__name__

    @cached_property
    def calls(self) -> list[CapturedCall]:
        """The recorded calls, without those of modules that also compute other attention."""
        others = {other.module for other in self._other_attention}
        return [call for call in self.texts.calls if call.site.module not in others]

    @cached_property
    def _unused_beside_calls(self) -> list[OtherResult]:
        """The unused softmaxes that may be weights of a recorded call of their module, computed a second time."""
        shapes: dict[str, set[tuple[int, int]]] = {}  # queries and keys of each module's calls
        for call in self.texts.calls:
            shapes.setdefault(call.site.module, set()).add((call.shape[2], call.shape[3]))
        unused = []
        for other in self.other_results:
            queries, keys = (1, *other.shape)[-2:]  # a vector is one query
            # A softmax in chunks has fewer queries.
            fits = any(queries <= rows and keys == columns for rows, columns in shapes.get(other.module, ()))
            if other.kind == UNUSED and fits:
                unused.append(other)
        return unused

    @cached_property
    def _other_attention(self) -> list[OtherResult]:
        """The results of modules that attend in another way."""
        return [other for other in self.other_results if other.is_attention and other not in self._unused_beside_calls]

    def _refuse_no_recurrence(self) -> None:
        """Raises AttnvizError if the implicit attention of a chosen layer, or of all layers, is unknown; says why."""
        chosen_layers = self.options.selection.chosen_layers or ()
        for module, reason in self.unread_recurrences.items():
            layer = self.modules.block_of(module, type(self.modules.modules[module])).number
            if not self.head_counts or layer in chosen_layers:
                place = module if layer is None else f"layer {layer} ({module})"
                raise AttnvizError(f"{place or 'the model'} has no implicit attention: {reason}")
        if self.head_counts or not self.runs.was_called:
            return
        raise AttnvizError(
            f"no linear layer of {self._name} computes a recurrence that attnviz reads: delta rules, Mamba, Mamba 2, "
            "RWKV 7, retention, lightning or gated linear attention; "
            f"leave out {option('attention', IMPLICIT)} for softmax attention"
        )

    def _refuse_no_call(self) -> None:
        """Raises AttnvizError if no attention call of the chosen part was observed; the message says why."""
        if self.head_counts:
            return
        if self.unreadable_tensors:
            module, kind = next(iter(self.unreadable_tensors.items()))
            raise AttnvizError(
                f"the attention of {self._name} cannot be read: {module or 'the model'} computes it on {kind}; "
                "run the forward pass on plain tensors"
            )
        if not self.runs.was_called:
            advice = " itself, not its compiled form," if anything_compiled() else ""
            raise AttnvizError(f"{self._name} was not called in the with block; call model(...){advice} there")
        if self.parts:
            raise AttnvizError(
                f"no {self.options.attention} attention in the forward pass of {self._name}; "
                f"choose {or_list(sorted(self.parts))} attention"
            )
        if calls_recurrences(self.modules.modules):
            raise AttnvizError(
                f"no attention with a softmax in the forward pass of {self._name}; "
                f"{option('attention', IMPLICIT)} gives what its linear layers sum"
            )
        observation = (
            f": {self.other_results[0].module or 'it'} computes {self.other_results[0].description}"
            if self.other_results
            else ""
        )
        exception = ", outside code that torch.compile made" if anything_compiled() else ""
        raise AttnvizError(
            f"no attention call in the forward pass of {self._name}{observation}; attnviz recognizes "
            f"attention functions of torch, and softmax(queries @ keys) multiplied by values{exception}"
        )

    def _implicit_remarks(self) -> Iterator[str]:
        """Yields what implicit attention is, and which linear layers are left out."""
        yield IMPLICIT_REMARK
        for module, reason in self.unread_recurrences.items():
            yield f"Left out: {module or 'the model'}: {reason}."

    def _remarks_on_missing(self) -> Iterator[str]:
        """Yields a remark on each kind of attention that the recording lacks, with the modules that compute it."""
        if self.unreadable_tensors:
            kinds = " or on ".join(dict.fromkeys(self.unreadable_tensors.values()))
            modules = _and_others(list(self.unreadable_tensors), "the model", "and of")
            yield f"Left out: attention of {modules}, computed on {kinds}."
        if self.modules.outsiders:
            names = _and_others(list(self.modules.outsiders))
            yield f"Left out: attention of {names}, which is no part of {self._name}."
        observed_modules = {site.module for site in self.head_counts}
        known_modules = (
            observed_modules | {other.module for other in self.other_results} | self.unreadable_tensors.keys()
        )
        compiled_modules = unobserved_modules(self.modules.modules, known_modules)
        if compiled_modules:
            verb = "compute" if len(compiled_modules) > 1 else "computes"
            modules = _and_others(compiled_modules, "the model")
            yield f"Left out: what {modules} {verb} as compiled code, which cannot be observed."
        others = [
            other
            for other in self.other_results
            if other in self._other_attention
            or (ATTENTION_CLASS.search(type(other.caller.module).__name__) and other.module not in observed_modules)
        ]
        if others:
            count, description = len({other.module for other in others}), others[0].description
            name = others[0].module or "the model itself"
            if count == 1:
                yield f"Left out: {name} computes no softmax over queries x keys, but {description}."
            else:
                modules = f"{count} modules compute no softmax over queries x keys, such as {name}"
                yield f"Left out: {modules} with {description}."
        unused = [other.module for other in self._unused_beside_calls if other not in self._other_attention]
        if unused:
            place = f"the attention of {_and_others(list(dict.fromkeys(unused)))}"
            yield f"Not shown: a softmax beside {place}; it multiplies no observed values."


def _and_others(modules: Sequence[str], name: str = "the model itself", joint: str = "and") -> str:
    """Returns the first of some modules, with the number of the others: ``layers.0 and 2 other modules``."""
    count = len(modules) - 1
    others = f" {joint} {count} other module{'s' if count > 1 else ''}" if count else ""
    return f"{modules[0] or name}{others}"


def _remarks_on_calls(calls: Sequence[CapturedCall]) -> Iterator[str]:
    """Yields remarks on modules that ran more than once, on notes of calls, and on modules that made several calls."""
    for module in dict.fromkeys(call.site.repeated_module for call in calls if call.site.repeated_module):
        module_calls = [call for call in calls if call.site.repeated_module == module]
        runs, layers = ({getattr(call.site, name) for call in module_calls} for name in ("run", "layer"))
        if runs != {0}:
            count = max(runs) + 1
            yield f"{module} ran {count} times in one pass: each run is a separate text, in the order of the runs."
            continue
        runs_and_layers = "run is layer" if len(layers) == 1 else "runs are layers"
        has_single_queries = all(call.shape[2] == 1 for call in module_calls)
        steps = ", or steps of one text" if has_single_queries else ""
        yield f"{module} ran more than once in one pass: its further {runs_and_layers} {number_ranges(layers)}{steps}."
    layers_of_notes: dict[str, set[int]] = {}
    for call in calls:
        if call.note:
            layers_of_notes.setdefault(call.note, set()).add(call.site.layer)
    for note, layers in layers_of_notes.items():
        yield f"In {layers_phrase(layers)} {note}."
    modules = list(dict.fromkeys(call.site.module for call in calls if call.site.call))
    if modules:
        times = 1 + max(call.site.call for call in calls)
        yield (
            f"Up to {times} calls in one pass by {_and_others(modules)}: the numbers of their heads go on from call "
            "to call; each call may have different tokens."
        )


def _remarks_on_blocks(all_maps: Sequence[LayerMaps]) -> tuple[str, ...]:
    """Returns a sentence for each size of blocks and reason why maps hold blocks of cells; empty if none do."""
    layers: dict[tuple[str, tuple[int, int]], set[int]] = {}
    for maps in all_maps:
        if maps.block != (1, 1):
            heads_differ = len(maps.head_groups(maps.heads)) > 1
            reason = "its heads see different cells" if heads_differ else "queries and keys are not known"
            layers.setdefault((reason, maps.block), set()).add(maps.layer)
    return tuple(
        f"In {layers_phrase(pooled_layers)} blocks of {queries} x {keys} tokens were captured instead "
        f"of single cells, because {reason}: edges are exact to one block; use a dense recording for every cell."
        for (reason, (queries, keys)), pooled_layers in layers.items()
    )


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
