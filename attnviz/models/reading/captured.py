"""Runs a module under the capture: records its maps, or computes every number of one of its layers."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.base.arrays import array_of
from attnviz.base.errors import AttnvizError, option
from attnviz.base.machine import is_out_of_memory, refuse_without_memory
from attnviz.base.progress import working
from attnviz.maps.visibility import shared_or_per_head
from attnviz.models.reading.computation import Computation, Projection
from attnviz.text.selection import Selection, refuse_missing

if TYPE_CHECKING:
    from torch import nn

    from attnviz.base.arrays import FloatArray
    from attnviz.capture.assembly.output_projection import OperandPlace, OutputProjection
    from attnviz.capture.calls.attention_call import AttentionCall, FactoredCall
    from attnviz.capture.flow.sites import CallSite
    from attnviz.maps.recording import Recording
    from attnviz.models.reading.example import Prepared

FLOAT_BYTES = 4  # of a float32
ARRAYS_AT_ONCE = 6  # arrays (heads, queries, keys) that are in memory together
MAX_ERROR_CHARACTERS = 300  # of a library's error in a message


def record_module(
    module: "nn.Module",
    prepared: "Prepared",
    selection: Selection,
    *,
    values: bool,
    dense: bool | None,
    factors: bool = False,
    failure: str = "",
) -> "Recording":
    """Returns the recording of one forward pass of a module.

    The pass ends after the last chosen layer, unless ``prepared.check`` needs the output. The remarks of this check
    come first in the recording. If the module fails without the capture too, ``failure`` begins the refusal; "" to
    raise the module's error unchanged.
    """
    import torch

    from attnviz.capture.capture_block import CaptureBlock
    from attnviz.capture.labels import CaptureOptions
    from attnviz.capture.model_calls import same_draws

    options = CaptureOptions(
        selection=selection,
        attention=prepared.attention,
        tokens=prepared.tokens if len(prepared.tokens) else None,
        context=prepared.context,
        stop=prepared.check is None,
        dense=dense,
        factors=factors,
        values=values,
        in_call_order=prepared.place is not None,
    )
    block = CaptureBlock(module, options)
    with (
        working("running the model"),
        refusals_of_broken(module, prepared.inputs, failure),
        torch.no_grad(),
        nullcontext() if prepared.place is None else same_draws(),
        block,
    ):
        output = module(**prepared.inputs)
    if prepared.check is None:
        return block.recording()
    remarks = prepared.check(output)
    recording = block.recording()
    return replace(recording, remarks=(*remarks, *recording.remarks))


@contextmanager
def refusals_of_broken(module: "nn.Module", inputs: Mapping[str, Any], failure: str) -> Iterator[None]:
    """Turns an error in the block into an AttnvizError if the module fails on its inputs alone, too; not if ``failure``
    is "".

    An error for lack of memory is raised unchanged.
    """
    import torch

    try:
        yield
    except AttnvizError:
        raise
    except Exception:
        if not failure:
            raise
        try:
            with torch.no_grad():
                module(**inputs)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            raise AttnvizError(f"{failure}: {error_line(error)}") from error
        raise


def error_line(error: BaseException) -> str:
    """Returns an error's message on one line, cut if it is long.

    A message of a single word follows the error's type; without a message, the type stands alone.
    """
    message = " ".join(str(error).split())
    short_message = message if len(message) <= MAX_ERROR_CHARACTERS else f"{message[:MAX_ERROR_CHARACTERS]}…"
    return short_message if " " in message else f"{type(error).__name__} {short_message}".strip()


class LayerCalls:
    """Collects the attention calls of one layer in a forward pass, and the output projection that follows.

    Attributes:
        calls: each call of the layer, with its place in the model.
        value_norms: ``(heads, keys)``, the norms of values after the output projection, or ``(heads, queries, keys)``
            if a gate scales them for each query; ``None`` if none was captured.
        result: ``(queries, features)``, the output of the projection; ``None`` if none was captured.
        projection: from the joined heads to the output; ``None`` if none was captured, or if a gate or a norm stands
            before it.
        readers: number of captured linear maps that read the call's output; a single one is the output projection.
    """

    def __init__(self, model: "nn.Module", layer: int, attention: Any) -> None:
        from attnviz.capture.capture_block import CaptureBlock
        from attnviz.capture.labels import CaptureOptions

        selection = Selection(layers=(layer,))
        options = CaptureOptions(
            selection=selection, attention=attention, stop=True, values=True, receive=self._receive_call
        )
        self.model, self.layer, self.block = model, layer, CaptureBlock(model, options)
        self.calls: list[tuple[CallSite, AttentionCall]] = []
        self.value_norms: FloatArray | None = None
        self.result: FloatArray | None = None
        self.projection: Projection | None = None
        self.readers = 0

    def run(self, inputs: Mapping[str, Any]) -> "tuple[CallSite, AttentionCall]":
        """Runs the model and returns the only attention call of the layer, with its place in the model.

        Also stores value norms and the result of the output projection if the projection is found.
        """
        with self.block:
            self.model(**inputs)
        capture = self.block.capture
        capture.finish()
        if not capture.head_counts:
            raise AttnvizError(
                f"no attention call in the forward pass of {type(self.model).__name__}; use a model with attention"
            )
        layers = sorted({site.layer for site in capture.head_counts})
        refuse_missing((self.layer,), layers, "layer", capture.silent_layers)
        if len(self.calls) != 1:
            calls = "no attention call of queries and keys" if not self.calls else f"{len(self.calls)} attention calls"
            raise AttnvizError(f"layer {self.layer} makes {calls}, but explain needs exactly one; use attnviz show")
        return self.calls[0]

    def _receive_call(self, site: "CallSite", heads: tuple[int, ...], call: "AttentionCall", first: int) -> None:
        """Stores a call of the layer, and asks for the linear map that reads the call's output."""
        self.calls.append((site, call))
        search = self.block.capture.observer.search
        if search is not None and call.output is not None and call.values is not None and call.postprocess is None:
            search.expect(call.output, self._receive_projection)

    def _receive_projection(self, projection: "OutputProjection", place: "OperandPlace") -> None:
        """Stores the output projection's value norms and result, and whether it has a bias."""
        from attnviz.capture.assembly.output_projection import call_value_norms, contribution_errors, rows_of

        self.readers += 1
        call = self.calls[-1][1]
        errors, tolerance = contribution_errors(call, projection)
        if self.readers > 1 or max(errors) > tolerance:  # or something else enters the map
            self.value_norms = self.result = self.projection = None
            return
        self.value_norms = call_value_norms(call, projection, range(call.shape[1]))[0]
        self.result = array_of(projection.result)
        if projection.factors is None and projection.norm is None and not projection.has_rest:
            weight = array_of(rows_of(projection.weight, projection.columns).flatten(0, 1))
            self.projection = Projection(weight, None if projection.bias is None else array_of(projection.bias))


def computation_of(model: "nn.Module", prepared_input: "Prepared", layer: int, name: str) -> Computation:
    """Returns every number of one attention layer of a model over an example.

    The capture sees neither the features before the projections to queries, keys and values, nor these projections:
    a model may join them in one, share keys among heads, and norm or rotate what they give.
    """
    import torch

    from attnviz.capture.calls.attention_call import pick_heads
    from attnviz.effects.score_attribution import composition

    context, attention = prepared_input.context, prepared_input.attention
    queries = keys = prepared_input.tokens
    if context is not None and attention in ("encoder", "cross"):
        queries, keys = context if attention == "encoder" else queries, context

    with torch.no_grad():
        layer_calls = LayerCalls(model, layer, attention)
        site, call = layer_calls.run(prepared_input.inputs)
        _, heads, *shape = call.shape
        refuse_without_memory(
            ARRAYS_AT_ONCE * heads * shape[0] * shape[1] * FLOAT_BYTES,
            f"a text of {shape[0]} tokens",
            f"use a shorter text, or attnviz show with {option('heads', '2.8')}",
        )
        factors = _factors(site, call)
        maps = factors.maps(range(heads))
        weights = array_of(call.maps(range(heads)).weights[0])  # exactly the model's, if its softmax ran in Python
    shape = list(factors.shape[2:])
    if shape != [len(queries), len(keys)]:  # such as windows of the text
        raise AttnvizError(
            f"layer {layer} attends with {shape[0]} queries to {shape[1]} keys, and not with {len(queries)} to "
            f"{len(keys)}, one per token; use attnviz show"
        )
    if call.values is None:
        raise AttnvizError("the values of this attention were not captured; use attnviz show")
    values = pick_heads(call.values, range(heads), heads)
    call_weights = call.weights(range(heads), slice(None))
    mixed_values = call_weights @ values.to(call_weights.dtype)

    embedding = getattr(model, "get_input_embeddings", lambda: None)()
    no_features = np.zeros((len(queries), 0), dtype=np.float32)  # features before the projections are not captured
    return Computation(
        layer=layer,
        tokens=queries,
        key_tokens=keys,
        cross=attention == "cross",
        vocabulary=len(getattr(embedding, "weight", ())),
        features=no_features,
        context_features=np.zeros((len(keys), 0), dtype=np.float32),
        projections={} if layer_calls.projection is None else {"O": layer_calls.projection},
        queries=array_of(pick_heads(factors.queries, range(heads), heads)[0]),
        keys=array_of(pick_heads(factors.keys, range(heads), heads)[0]),
        values=array_of(values[0]),
        scores=array_of(maps.scores[0]),
        weights=weights,
        dropped_weights=weights,  # dropout is off
        mixed_values=array_of(mixed_values[0]),
        output=no_features if layer_calls.result is None else layer_calls.result,
        visible=shared_or_per_head(maps.visible[0].cpu().numpy()),
        scale=factors.scale,
        temperature=1.0,
        dropout=0.0,
        seed=None,
        score_parts=partial(composition, model, prepared_input.inputs, layer),
        value_norms=layer_calls.value_norms,
        model_name=name,
        score_additions=_score_additions(factors),
        key_heads=int(factors.keys.shape[1]),
    )


def _factors(site: "CallSite", call: "AttentionCall") -> "FactoredCall":
    """Returns a call with its queries and keys: arguments of a kernel, or recovered from the computation of scores."""
    from attnviz.capture.assembly.factors import factors_of

    factors = factors_of(call, list(range(call.shape[1])))
    if factors is None or site.head is not None:
        raise AttnvizError(
            f"the scores of layer {site.layer} are not products of queries and keys, as far as attnviz sees; "
            "use attnviz show"
        )
    if factors.sinks is not None:
        raise AttnvizError(
            f"the heads of layer {site.layer} give a share of each row to a sink, which explain does not cover; "
            "use attnviz show"
        )
    return factors


def _score_additions(factors: "FactoredCall") -> str:
    """Returns a sentence on a soft cap and one on a position bias, joined by a space; "" if the call has neither."""
    import torch

    from attnviz.capture.calls.attention_call import hidden_cells

    mask, sentences = factors.mask, []
    if factors.softcap is not None:
        sentences.append(f"Scores are then limited by the model's soft cap, {factors.softcap:g}.")
    adds_to_visible = (
        mask is not None and mask.dtype != torch.bool and bool(mask.masked_fill(hidden_cells(mask), 0).any())
    )
    if factors.position_biases or adds_to_visible:
        sentences.append("The model adds a position bias to the scores.")
    return " ".join(sentences)
