"""Models of transformers that scale the heads' output before its projection, against hooks of our own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers.modeling_utils import AttentionInterface
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

import attnviz
from attnviz.maps.layer_maps import cell_maps
from tests.capture.small_architectures import MODELS, build
from tests.effects.examples import logit_attribution

IDS = torch.tensor([[7, 21, 35, 8, 21, 60, 11]])
TOKEN, HEADS, KEYS = 9, (0, 3), (0, 2, 5)
# What follows the last heads in the sum that gives a logit: the last norm alone, norms of each layer too, or nothing
# that is a sum
KINDS = {
    "afmoe": "norms",
    "axk2": "norm",
    "bailing_hybrid": "norm",
    "beam": "norms",
    "hy_v4": "norms",
    "laguna": "norm",
    "lfm3": "norms",
    "muse_glimmer_text": "",
    "muse_spark_text": "",
    "qwen3_5_text": "norm",
    "qwen3_5_moe_text": "norms",
    "qwen3_next": "norms",
    "qwen4_exp_text": "",
}


@cache
def model_of(kind: str) -> nn.Module:
    model: nn.Module = build(kind, "narrow", {**MODELS, **MODEL_FOR_CAUSAL_LM_MAPPING_NAMES})
    return model


def number_of(output: Any) -> float:
    """A number that depends on all layers: a token's logit, or a feature of the last token."""
    return float(output.logits[0, -1, TOKEN] if hasattr(output, "logits") else output.last_hidden_state[0, -1, 0])


@contextmanager
def changed_outputs(change: Callable[[nn.Module, Tensor, Tensor], Tensor]) -> Iterator[None]:
    """Replaces what each attention function gives ``(batch, queries, heads, features)``, given module and values."""
    original = AttentionInterface.get_interface

    def get_interface(*args: Any, **options: Any) -> Callable[..., Any]:
        function = original(*args, **options)

        def attention(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *args: Any, **options: Any) -> Any:
            output, weights = function(module, query, key, value, *args, **options)
            return change(module, output, value), weights

        return attention

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AttentionInterface, "get_interface", get_interface)
        yield


@torch.no_grad()
def vectors_of(model: nn.Module, path: str) -> dict[tuple[int, int], Tensor]:
    """What a key adds to each query in a head at weight 1, ``(queries, width)``: a run with its value for the output.

    A norm of the output, as one architecture has it, keeps the scale of the run without changes.
    """
    attention, projected, scales = model.get_submodule(path), list[Tensor](), list[Tensor]()

    def freeze(module: nn.Module, args: tuple[Tensor], result: Tensor) -> Tensor:
        scales.append(result / args[0])
        return args[0] * scales[0]

    norms = [attention.get_submodule("o_norm")] if hasattr(attention, "o_norm") else []
    handles = [norm.register_forward_hook(freeze) for norm in norms]
    if norms:
        model(input_ids=IDS)
    projection = attention.get_submodule("o_proj")
    handles.append(projection.register_forward_hook(lambda _, args, result: projected.append(result[0])))
    pairs = [(head, key) for head in HEADS for key in KEYS]
    for pair in (None, *pairs):

        def only(module: nn.Module, output: Tensor, values: Tensor, pair: Any = pair) -> Tensor:
            if module is not attention:
                return output
            changed = torch.zeros_like(output)
            if pair is not None:
                changed[:, :, pair[0]] = values[:, pair[0] * values.shape[1] // output.shape[2], pair[1]][:, None]
            return changed

        with changed_outputs(only):
            model(input_ids=IDS)
    for handle in handles:
        handle.remove()
    return {pair: vector - projected[0] for pair, vector in zip(pairs, projected[1:], strict=True)}


@pytest.mark.parametrize("kind", KINDS)
def test_heads_of_gated_models_are_those_of_hooks(kind: str) -> None:
    model, whole = model_of(kind), slice(0, IDS.shape[1])
    with torch.no_grad(), attnviz.record(model, values=True) as recording:
        model(input_ids=IDS)
    weights = next(maps for maps in reversed(recording.maps) if maps.module.endswith("self_attn"))
    contributions = next(
        maps
        for maps in attnviz.contributions(recording).maps
        if (maps.layer, maps.module) == (weights.layer, weights.module)
    )
    vectors = vectors_of(model, weights.module)
    of_heads = [cell_maps(maps).window(HEADS, whole, whole).weights for maps in (weights, contributions)]
    for (head, key), vector in vectors.items():
        alpha, found = (maps[HEADS.index(head), :, key] for maps in of_heads)
        np.testing.assert_allclose(found, alpha * vector.norm(dim=-1).numpy(), atol=1e-5)
    assert of_heads[1].max() > 1e-3

    effects = attnviz.ablate(
        model, {"input_ids": IDS}, heads=[f"{weights.layer}.{head}" for head in HEADS], metric=number_of
    )
    projection = model.get_submodule(f"{weights.module}.o_proj")
    for head, effect in zip(HEADS, effects.rows, strict=True):

        def without_head(module: Any, args: tuple[Tensor], head: int = head) -> Tensor:
            operand = args[0].clone()
            operand.view(*operand.shape[:2], -1, operand.shape[2] // len(weights.heads))[:, :, head] = 0
            return operand

        with torch.no_grad():
            handle = projection.register_forward_pre_hook(without_head)
            number = number_of(model(input_ids=IDS))
            handle.remove()
            assert effect.values[0] == pytest.approx(number - number_of(model(input_ids=IDS)), abs=1e-5)

    if not KINDS[kind]:
        return
    parts = logit_attribution(model, IDS, token=TOKEN)
    assert parts.difference < 1e-5
    if KINDS[kind] == "norms":
        return
    [norm], rows = parts.frozen, list[Tensor]()
    handle = model.get_submodule(norm).register_forward_hook(lambda _, args, result: rows.extend((args[0], result)))
    with torch.no_grad():
        model(input_ids=IDS)
    handle.remove()
    unembedding = model.get_output_embeddings().weight.detach()  # type: ignore[operator]
    gradient = unembedding[TOKEN] * (rows[1] / rows[0])[0, -1]
    for (head, key), vector in vectors.items():
        keys = parts[f"{weights.layer}.{head}"].keys
        assert keys is not None
        expected = of_heads[0][HEADS.index(head), -1, key] * float(vector[-1] @ gradient)
        assert keys[key] == pytest.approx(expected, abs=1e-5)
