"""Capture of plain torch modules: every way to write attention, against numbers worked out beside it."""

import math
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import attnviz
from attnviz.api.recording import DrawableRecording
from attnviz.base.errors import AttnvizError
from attnviz.capture.calls.attention_call import DenseCall, FactoredCall
from attnviz.maps.cell_maps import DenseMaps, FactoredMaps
from attnviz.maps.layer_maps import cell_maps
from attnviz.maps.recording import Recording
from attnviz.text.tokens import tokenize
from tests.conftest import cells
from tests.report.examples import drawn

HEADS, WIDTH = 4, 12


@pytest.fixture(autouse=True)
def quiet_torch() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)


class Nano(nn.Module):
    """Causal attention as nanoGPT has it, by the kernel or by hand."""

    def __init__(self, by_hand: bool = False) -> None:
        super().__init__()
        self.c_attn = nn.Linear(WIDTH, 3 * WIDTH)
        self.n_head, self.by_hand = HEADS, by_hand

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        queries, keys, values = (
            part.view(batch, tokens, self.n_head, -1).transpose(1, 2) for part in self.c_attn(x).split(WIDTH, dim=2)
        )
        if not self.by_hand:
            output = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        else:
            scores = (queries @ keys.transpose(-2, -1)) * (1.0 / math.sqrt(keys.size(-1)))
            scores = scores.masked_fill(torch.tril(torch.ones(tokens, tokens)) == 0, float("-inf"))
            output = functional.dropout(functional.softmax(scores, dim=-1), 0.1, self.training) @ values
        return x + output.transpose(1, 2).reshape(batch, tokens, WIDTH)


class Blank(nn.Module):
    """One head without a batch, as in a first lesson; no name in it says that it attends."""

    def __init__(self, softmax: Callable[[Tensor], Tensor] = lambda scores: scores.softmax(-1)) -> None:
        super().__init__()
        self.project = nn.Linear(WIDTH, 3 * WIDTH)
        self.normalise = softmax

    def forward(self, x: Tensor) -> Tensor:
        queries, keys, values = self.project(x).chunk(3, dim=-1)
        weights: Tensor = self.normalise(queries @ keys.transpose(-2, -1) / WIDTH**0.5)
        return torch.matmul(weights, values)


class Kernel(nn.Module):
    """The kernel with its options; without values, or keys and values, those of the argument before."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, q: Tensor, k: Tensor | None = None, v: Tensor | None = None) -> Tensor:
        k = q if k is None else k
        return functional.scaled_dot_product_attention(q, k, k if v is None else v, **self.options)


class Lesson(nn.Module):
    """Heads that are modules of their own, joined."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList([Blank() for _ in range(3)])

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.stack([head(x) for head in self.heads]).sum(0)


def recorded(model: nn.Module, *inputs: Any, **options: Any) -> attnviz.Recording:
    with attnviz.record(model, **options) as recording:
        model(*inputs)
    return recording


def fidelity(maps: DenseMaps) -> float:
    assert maps.fidelity is not None
    return maps.fidelity


def maps_of(recording: Recording, layer: int = 0, item: int = 0) -> DenseMaps:
    [maps] = [maps for maps in recording.maps if maps.layer == layer and maps.item == item]
    assert isinstance(maps, DenseMaps)
    return maps


def by_formula(module: Nano, x: Tensor) -> tuple[Tensor, Tensor]:
    """Scores and causal weights from the paper's formula in float64, ``(batch, heads, queries, keys)``."""
    double = module.c_attn.double()
    parts = [part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in double(x.double()).split(WIDTH, dim=2)]
    scores = torch.einsum("bhqf,bhkf->bhqk", parts[0], parts[1]) / math.sqrt(WIDTH / HEADS)
    visible = torch.ones(x.shape[1], x.shape[1]).tril().bool()
    return scores, scores.masked_fill(~visible, float("-inf")).softmax(-1)


@torch.no_grad()
def test_kernel_gives_scores_and_weights_of_the_formula() -> None:
    model, x = Nano(), torch.randn(2, 5, WIDTH)
    recording = recorded(model, x)
    scores, weights = by_formula(model, x)
    maps = maps_of(recording, item=1)
    np.testing.assert_allclose(maps.scores, scores[1], atol=1e-6)
    np.testing.assert_allclose(maps.weights, weights[1], atol=1e-6)
    assert np.array_equal(maps.visible, np.tri(5, dtype=bool))
    assert maps.scale == pytest.approx(1 / math.sqrt(3))
    assert fidelity(maps) < 1e-6


@torch.no_grad()
def test_attention_by_hand_gives_the_same_weights_and_no_score_where_the_mask_hid_it() -> None:
    model, x = Nano(by_hand=True).eval(), torch.randn(2, 5, WIDTH)
    recording = recorded(model, x)
    scores, weights = by_formula(model, x)
    maps = maps_of(recording)
    np.testing.assert_allclose(maps.weights, weights[0], atol=1e-6)
    np.testing.assert_allclose(maps.scores[:, maps.visible], scores[0].numpy()[:, maps.visible], atol=1e-5)
    assert np.isnan(maps.scores[:, ~maps.visible]).all()
    assert fidelity(maps) < 1e-6


@torch.no_grad()
def test_dropout_after_the_softmax_is_not_in_the_weights() -> None:
    model, x = Nano(by_hand=True).train(), torch.randn(1, 5, WIDTH)
    recording = recorded(model, x)
    np.testing.assert_allclose(maps_of(recording).weights.sum(-1), 1, atol=1e-6)
    fidelity = maps_of(recording).fidelity
    assert fidelity is not None
    assert fidelity < 1e-6


@pytest.mark.parametrize(
    "softmax",
    [
        nn.Softmax(dim=-1),
        lambda scores: torch.softmax(scores, 1),
        lambda scores: functional.softmax(scores, dim=-1, dtype=torch.float32),
        lambda scores: torch.special.softmax(scores, dim=-1),
        lambda scores: scores.softmax(dim=1),
        lambda scores: functional.dropout(scores.double().softmax(-1), 0.0, True).float(),
    ],
)
@torch.no_grad()
def test_any_softmax_that_multiplies_values_is_attention(softmax: Callable[[Tensor], Tensor]) -> None:
    model, x = Blank(softmax), torch.randn(5, WIDTH)
    recording = recorded(model, x)
    queries, keys, _ = model.project(x).chunk(3, dim=-1)
    expected = (queries @ keys.T / WIDTH**0.5).softmax(-1)
    np.testing.assert_allclose(maps_of(recording).weights[0], expected, atol=1e-6)


@torch.no_grad()
def test_softmax_over_classes_is_not_attention() -> None:
    model = nn.Sequential(nn.Linear(WIDTH, 7), nn.Softmax(dim=-1), nn.Linear(7, 3))
    with pytest.raises(AttnvizError, match="no attention call in the forward pass of Sequential"):  # noqa: SIM117
        with attnviz.record(model):
            model(torch.randn(2, 5, WIDTH))


@torch.no_grad()
def test_heads_that_are_modules_become_heads_of_one_layer() -> None:
    model, x = nn.Sequential(Lesson(), Lesson()), torch.randn(2, 5, WIDTH)
    recording = recorded(model, x)
    assert [(maps.layer, maps.heads, maps.item) for maps in recording.maps] == [
        (layer, (0, 1, 2), item) for layer in (0, 1) for item in (0, 1)
    ]
    chosen = recorded(model, x, layers=[1], heads=[2])
    assert np.array_equal(maps_of(chosen, 1).weights[0], maps_of(recording, 1).weights[2])


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("inference", [True, False])
@pytest.mark.parametrize("keys", [5, 7])
def test_multi_head_attention_equals_the_weights_that_it_returns(
    need_weights: bool, inference: bool, keys: int
) -> None:
    model = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).eval()
    queries, others = torch.randn(2, 5, WIDTH), torch.randn(2, keys, WIDTH)
    padding = torch.arange(keys)[None] >= torch.tensor([[keys], [3]])
    context = queries if keys == 5 else others
    with torch.set_grad_enabled(not inference):
        real, weights = model(queries, context, context, average_attn_weights=False, key_padding_mask=padding)
        with attnviz.record(model) as recording:
            output, _ = model(queries, context, context, need_weights=need_weights, key_padding_mask=padding)
        bare, _ = model(queries, context, context, need_weights=need_weights, key_padding_mask=padding)
    assert torch.equal(output, bare)
    torch.testing.assert_close(output, real, atol=1e-6, rtol=0)
    for item in (0, 1):
        maps = maps_of(recording, item=item)
        assert maps.kind == ("self" if keys == 5 else "cross")
        np.testing.assert_allclose(maps.weights, weights[item].detach(), atol=1e-6)
        assert np.array_equal(maps.visible, np.broadcast_to(~padding[item], (5, keys)))


MASKS: dict[str, dict[str, Tensor]] = {
    "none": {},
    "causal": {"mask": torch.ones(5, 5).triu(1).bool()},
    "padding": {"src_key_padding_mask": torch.tensor([[False] * 5, [False] * 3 + [True] * 2])},
    "both": {
        "mask": torch.ones(5, 5).triu(1).bool(),
        "src_key_padding_mask": torch.tensor([[False] * 5, [False] * 3 + [True] * 2]),
    },
}


@pytest.mark.parametrize("masks", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_fused_encoder_stays_fused_and_equals_the_plain_one(masks: dict[str, Tensor], norm_first: bool) -> None:
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 20, batch_first=True, norm_first=norm_first)
    model, x = nn.TransformerEncoder(layer, 2).eval(), torch.randn(2, 5, WIDTH)
    with torch.no_grad():
        bare = model(x, **masks)
        with attnviz.record(model) as fused:
            output = model(x, **masks)
    assert torch.equal(output, bare)
    with attnviz.record(model) as plain:
        model(x, **masks)
    assert all(maps.fidelity is not None and maps.fidelity < 1e-6 for maps in (*fused.maps, *plain.maps))
    for a, b in zip(fused.maps, plain.maps, strict=True):
        assert isinstance(a, DenseMaps)
        assert isinstance(b, DenseMaps)
        assert (a.layer, a.item, a.heads) == (b.layer, b.item, b.heads)
        np.testing.assert_allclose(a.weights, np.where(a.visible, b.weights, 0), atol=1e-6)


@torch.no_grad()
def test_decoder_has_self_and_cross_attention_in_each_layer() -> None:
    model = nn.TransformerDecoder(nn.TransformerDecoderLayer(WIDTH, HEADS, 20, batch_first=True), 2).eval()
    x, memory = torch.randn(1, 5, WIDTH), torch.randn(1, 7, WIDTH)
    recording = recorded(model, x, memory)
    assert [(maps.layer, maps.kind) for maps in recording.maps] == [
        (0, "self"),
        (0, "cross"),
        (1, "self"),
        (1, "cross"),
    ]
    cross = recorded(model, x, memory, attention="cross", tokens=list("abcde"), context=list("tuvwxyz"))
    assert [maps.kind for maps in cross.maps] == ["cross", "cross"]
    assert cross.maps[0].query_tokens.labels == tuple("abcde")
    assert cross.maps[0].key_tokens.labels == tuple("tuvwxyz")


@pytest.mark.parametrize("never", [float("-inf"), torch.finfo(torch.float32).min, -1e4, -1e9])
@torch.no_grad()
def test_every_way_to_write_a_mask_hides_and_a_bias_beside_it_stays_a_score(never: float) -> None:
    bias = torch.randn(5, 7)
    hidden = torch.zeros(5, 7, dtype=torch.bool)
    hidden[:, 5:] = hidden[2, :3] = True
    mask = bias.masked_fill(hidden, never)
    q, k, v = torch.randn(1, 3, 5, 8), torch.randn(1, 3, 7, 8), torch.randn(1, 3, 7, 8)
    model = Kernel(attn_mask=mask)
    recording = recorded(model, q, k, v)
    maps = maps_of(recording)
    assert np.array_equal(maps.visible, ~hidden)
    expected = torch.einsum("hqf,hkf->hqk", q[0], k[0]) / math.sqrt(8) + bias
    np.testing.assert_allclose(maps.scores[:, maps.visible], expected[:, ~hidden], atol=1e-5)
    assert fidelity(maps) < 1e-5


def test_steep_bias_of_a_long_text_is_not_taken_for_a_mask() -> None:
    from attnviz.capture.calls.attention_call import hidden_cells

    slope = -0.7 * torch.arange(20_000.0)
    assert not hidden_cells(slope).any()
    assert hidden_cells(torch.cat([slope, torch.tensor([float("-inf")])])).sum() == 1


@torch.no_grad()
def test_row_that_sees_nothing_is_all_zero_and_absent() -> None:
    mask = torch.ones(5, 5, dtype=torch.bool)
    mask[2] = False
    model = Kernel(attn_mask=mask)
    recording = recorded(model, torch.randn(1, 2, 5, 6))
    maps = maps_of(recording)
    assert not maps.visible[2].any()
    assert not maps.weights[:, 2].any()
    assert np.isfinite(maps.weights).all()


@torch.no_grad()
def test_grouped_queries_share_the_keys_of_their_group() -> None:
    q, k = torch.randn(1, 6, 5, 8), torch.randn(1, 2, 7, 8)
    model = Kernel(enable_gqa=True)
    recording = recorded(model, q, k, heads=[1, 4])
    maps = maps_of(recording)
    expected = torch.stack([q[0, head] @ k[0, group].T / math.sqrt(8) for head, group in ((1, 0), (4, 1))])
    assert maps.heads == (1, 4)
    np.testing.assert_allclose(maps.scores, expected, atol=1e-5)
    assert fidelity(maps) < 1e-6


@torch.no_grad()
def test_values_may_have_more_heads_than_keys() -> None:
    q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 7, 8), torch.randn(2, 4, 7, 3)
    model = Kernel(enable_gqa=True)
    recording = recorded(model, q, k, v)
    maps = maps_of(recording)
    expected = (q[0] @ k[0].repeat_interleave(2, 0).mT / math.sqrt(8)).softmax(-1)
    np.testing.assert_allclose(maps.weights, expected, atol=1e-6)
    assert fidelity(maps) < 1e-6


@pytest.mark.parametrize("by_hand", [True, False])
@torch.no_grad()
def test_chosen_layers_and_heads_equal_those_of_a_full_recording(by_hand: bool) -> None:
    model, x = nn.Sequential(*[Nano(by_hand) for _ in range(4)]).eval(), torch.randn(2, 5, WIDTH)
    with attnviz.record(model) as full:
        bare = model(x)
    with attnviz.record(model, layers=[2, 1], heads=[3, 1]) as chosen:
        assert torch.equal(model(x), bare)
    assert chosen.layers == (1, 2)
    for maps in chosen.maps:
        assert isinstance(maps, DenseMaps)
        assert maps.heads == (1, 3)
        assert np.array_equal(maps.weights, maps_of(full, maps.layer, maps.item).weights[[1, 3]])


@pytest.mark.parametrize("by_hand", [True, False])
@torch.no_grad()
def test_stop_ends_the_forward_pass_after_the_last_chosen_layer(by_hand: bool) -> None:
    ran = []
    model, x = nn.Sequential(*[Nano(by_hand) for _ in range(4)]).eval(), torch.randn(1, 5, WIDTH)
    for number, layer in enumerate(model):
        layer.register_forward_hook(lambda *_, number=number: ran.append(number))
    with attnviz.record(model, layers=[0, 1], stop=True) as recording:
        model(x)
        raise AssertionError("what follows the forward pass does not run")
    assert ran == [0]
    assert recording.layers == (0, 1)


@pytest.mark.parametrize("stop", [True, False])
def test_nothing_is_left_behind_even_when_the_forward_pass_raises(stop: bool) -> None:
    from torch.nn.modules import module as hooks

    mode_stack: Any = torch.overrides._get_current_function_mode_stack
    kernel, overridden = functional.scaled_dot_product_attention, torch.overrides.has_torch_function
    model, x = nn.Sequential(Nano(), Nano(), nn.Linear(3, 3)), torch.randn(1, 5, WIDTH)
    before = {name: id(value) for name, value in vars(model[0]).items()}
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), attnviz.record(model, layers=[1]):
        model(x)
    with attnviz.record(model, layers=[0], stop=True):
        model(x)
    assert functional.scaled_dot_product_attention is kernel
    assert torch.overrides.has_torch_function is overridden
    assert vars(functional)["has_torch_function"] is overridden
    assert not hooks._global_forward_pre_hooks
    assert not mode_stack()
    assert {name: id(value) for name, value in vars(model[0]).items()} == before


@torch.no_grad()
def test_bfloat16_is_recorded_in_float32() -> None:
    model, x = Nano().to(torch.bfloat16), torch.randn(1, 5, WIDTH, dtype=torch.bfloat16)
    recording = recorded(model, x)
    assert maps_of(recording).scores.dtype == np.float32
    assert recording.settings["dtype"] == "bfloat16"
    assert maps_of(recording).fidelity is not None


@torch.no_grad()
@pytest.mark.parametrize("dense", [True, False])
def test_autocast_rounds_what_the_model_multiplies_and_nothing_that_is_computed_of_it(dense: bool) -> None:
    queries, keys = torch.randn(1, 3, 5, 8), torch.randn(1, 3, 7, 8)
    model = Kernel()
    with torch.autocast("cpu", dtype=torch.bfloat16), attnviz.record(model, dense=dense) as recording:
        model(queries, keys)
    rounded = (each.bfloat16().double() for each in (queries, keys))
    expected = (next(rounded) @ next(rounded).transpose(-1, -2) / math.sqrt(8)).softmax(-1)
    window = cells(recording).window((0, 1, 2), slice(0, 5), slice(0, 7))
    np.testing.assert_allclose(window.weights, expected[0], atol=1e-6)


@torch.no_grad()
@pytest.mark.parametrize("by_hand", [True, False])
@pytest.mark.parametrize("size", [1e-5, 1.0, 1e3])
@pytest.mark.parametrize("way", ["autocast", "bfloat16", "float16", "float32"])
def test_maps_are_doubted_only_beyond_the_precision_and_the_size_of_what_their_call_computed(
    by_hand: bool, way: str, size: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = Nano(by_hand), 20 * torch.randn(1, 40, WIDTH)
    for parameter in model.parameters():
        parameter[2 * WIDTH :] *= size  # that of the values
    if way in ("bfloat16", "float16"):
        model, x = model.to(getattr(torch, way)), x.to(getattr(torch, way))

    def remark() -> str:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=way == "autocast"):
            recording = recorded(model, x)
        return drawn(attnviz.build_report(recording, attnviz.ReportOptions())).remarks[-1]

    assert remark().startswith("Checked: weights @ values equal")
    assert size != 1 or ("as its precision rounds" in remark()) == (way != "float32" and not by_hand)
    for call, name in ((FactoredCall, "_softmax"), (DenseCall, "weights")):  # a map that is wrong by one key
        weights = getattr(call, name)
        monkeypatch.setattr(call, name, lambda *given, weights=weights: weights(*given).roll(1, -1))
    assert remark().startswith("Warning: in layer 0 weights @ values differ by")


@pytest.mark.parametrize(
    ("attribute", "name", "expected"),
    [(None, None, "Nano"), ("Acme", None, "Acme"), (len, None, "Nano"), ("A", "B", "B")],
)
def test_a_model_has_the_name_that_is_given_else_its_own_else_that_of_its_class(
    attribute: Any, name: str | None, expected: str
) -> None:
    model = Nano()
    if attribute is not None:
        model.name = attribute
    with attnviz.record(model, name=name) as recording:
        assert repr(recording).startswith(f"Recording of {expected}, still running")
        model(torch.randn(1, 5, WIDTH))
    assert recording.model == expected
    assert f" in {expected}, " in drawn(attnviz.build_report(recording, attnviz.ReportOptions())).caption


def test_recording_is_one_that_everything_else_takes() -> None:
    model = Nano()
    recording = recorded(model, torch.randn(1, 5, WIDTH), tokens=["it", "was", "hungry", "\x1b[31m", "x"])
    assert isinstance(recording, Recording)
    report = drawn(attnviz.build_report(recording, attnviz.ReportOptions()))
    assert report.panels[0].rows.labels == ("it", "was", "hungry", "\\x1b[31m", "x")


def test_equal_strings_of_a_list_are_copies_unless_the_model_read_other_ids() -> None:
    words = ["cat", "sat", "cat", "sat"]
    assert maps_of(recorded(Nano(), torch.randn(1, 4, WIDTH), tokens=words)).query_tokens.ids.tolist() == [0, 1, 0, 1]
    model = nn.Sequential(nn.Embedding(9, WIDTH), Nano())
    recording = recorded(model, torch.tensor([[5, 7, 5, 8]]), tokens=words)
    assert maps_of(recording, layer=recording.maps[0].layer).query_tokens.ids.tolist() == [5, 7, 5, 8]


def refused(model: nn.Module, *runs: Tensor, **options: Any) -> str:
    try:
        with attnviz.record(model, **options):
            for x in runs:
                model(x)
    except AttnvizError as refusal:
        return str(refusal)
    return "nothing was refused"


X = torch.randn(1, 5, WIDTH)


def test_refusals_say_what_was_given_and_what_would_work() -> None:
    two = nn.Sequential(Nano(), Nano())
    assert "no layer 7; there are 0-1" in refused(two, X, layers=[7])
    assert "no layer 7; there are 0-1" in refused(two, X, layers=[7], stop=True)
    assert "no head in layer 1: 4; there are 0-3" in refused(two, X, layers=[1], heads=[4])
    assert "was not called" in refused(two)
    assert "no attention call" in refused(nn.Linear(WIDTH, 3), X)
    assert "unknown attention 'both'; choose encoder, decoder, cross or implicit" in refused(two, X, attention="both")
    assert "not finite" in refused(two, X * float("nan"))


def test_refuses_compiled_and_scripted_models() -> None:
    class Compiled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self._orig_mod = Nano()

    assert "record (and call) model._orig_mod" in refused(Compiled())
    with pytest.warns(DeprecationWarning, match=r"torch\.jit"):
        scripted = torch.jit.trace(nn.Linear(WIDTH, 3), X)  # type: ignore[no-untyped-call]
    assert "'0' of the model is scripted" in refused(nn.Sequential(scripted))


@pytest.mark.filterwarnings("ignore:`isinstance")
@pytest.mark.parametrize("by_hand", [True, False])
@torch.no_grad()
def test_an_exported_model_gives_the_same_maps_where_its_modules_are_kept_and_is_refused_as_one_graph(
    by_hand: bool,
) -> None:
    model, x = nn.Sequential(Nano(by_hand), Nano(by_hand)).eval(), torch.randn(2, 5, WIDTH)
    exported = torch.export.export(model, (x,))
    kept = torch.export.unflatten(exported)
    expected = recorded(model, x)
    recording = recorded(kept, x)
    assert [(maps.module, maps.item) for maps in recording.maps] == [(maps.module, maps.item) for maps in expected.maps]
    for layer in (0, 1):
        np.testing.assert_allclose(maps_of(recording, layer).weights, maps_of(expected, layer).weights, atol=1e-6)
    assert "torch.export.unflatten(exported)" in refused(exported.module(), x)


@pytest.mark.filterwarnings("ignore")  # torch's own, of what will be removed
@torch.no_grad()
def test_quantized_projections_are_recorded_as_they_were_computed() -> None:
    model, x = nn.Sequential(Nano(), Nano()).eval(), torch.randn(2, 5, WIDTH)
    small: Any = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)  # type: ignore[no-untyped-call]
    bare = small(x)
    with attnviz.record(small) as recording:
        assert torch.equal(small(x), bare)
    queries, keys, _ = (
        part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in small[0].c_attn(x).split(WIDTH, dim=2)
    )
    hidden = torch.ones(5, 5).triu(1).bool()
    scores = (queries @ keys.transpose(-1, -2) / math.sqrt(WIDTH / HEADS)).masked_fill(hidden, float("-inf"))
    np.testing.assert_allclose(maps_of(recording, 0).weights, scores.softmax(-1)[0], atol=1e-6)


@torch.no_grad()
def test_refuses_a_softmax_that_is_no_map_of_queries_by_keys_and_names_its_layer() -> None:
    class Banded(nn.Module):
        num_heads = 3

        def forward(self, x: Tensor) -> Tensor:
            scores = x.new_zeros(1, 5, 3, 4)  # (batch, queries, heads, band)
            return x + (scores.softmax(-1) @ x.new_zeros(1, 5, 4, 2)).sum()

    class LandmarkAttention(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            a, b, c = (x.new_zeros(1, *shape).softmax(-1) for shape in ((5, 2), (2, 2), (2, 5)))
            return x + (a @ b @ (c @ x))

    said = refused(nn.Sequential(Nano(), Banded()), X, layers=[1])
    assert "layer 1 (1) computes no softmax over queries x keys, but weights whose axes do not fit the module" in said
    assert "computes no softmax over queries x keys" in refused(nn.Sequential(LandmarkAttention()), X)


LONG = 300  # tokens, whose maps are held as factors


@torch.no_grad()
def test_logsumexp_of_long_maps_is_the_kernels_where_it_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from attnviz.capture.assembly import captured_call

    class Plain(nn.Module):
        def forward(self, q: Tensor, mask: Tensor | None) -> Tensor:
            return functional.scaled_dot_product_attention(q, q, q, mask)

    def refuse(*arguments: object) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(captured_call, "_row_logsumexp", refuse)
    q = torch.randn(1, 3, LONG, 8)
    blind = torch.ones(LONG, LONG, dtype=torch.bool)
    blind[7] = False
    model = Plain()
    for mask in (None, blind):
        recording = recorded(model, q, mask)
        [maps] = recording.maps
        assert isinstance(maps, FactoredMaps)
        weights = maps.window((0, 1, 2), slice(0, LONG), slice(0, LONG)).weights
        seen = np.arange(LONG) != 7 if mask is not None else np.ones(LONG, dtype=bool)
        np.testing.assert_allclose(weights.sum(-1), np.tile(seen, (3, 1)), atol=1e-5)
        assert np.array_equal(np.isneginf(np.asarray(maps.factors.logsumexp[:])), np.tile(~seen, (3, 1)))


@pytest.mark.parametrize("masked", ["nothing", "causal", "padding", "causal and padding", "scattered"])
@torch.no_grad()
def test_long_maps_are_held_as_factors_and_give_the_same_windows(masked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from attnviz.capture.assembly import captured_call

    class Grouped(nn.Module):
        def forward(self, q: Tensor, k: Tensor) -> Tensor:
            return functional.scaled_dot_product_attention(q, k, k, mask, is_causal=causal, enable_gqa=True)

    real = torch.arange(LONG) < 280
    masks = {
        "padding": real.expand(LONG, LONG),
        "causal and padding": torch.ones(LONG, LONG).tril().bool() & real,
        "scattered": torch.rand(LONG, LONG) < 0.5,
    }
    mask, causal = masks.get(masked), masked == "causal"
    q, k = torch.randn(2, 6, LONG, 8), torch.randn(2, 2, LONG, 8)
    model = Grouped()
    factored = recorded(model, q, k, heads=[5, 1])
    monkeypatch.setattr(captured_call, "MAX_DENSE_CELLS", LONG**2)
    dense = recorded(model, q, k, heads=[5, 1])
    everything = slice(0, LONG)
    for a, b in zip(factored.maps, dense.maps, strict=True):
        assert isinstance(a, FactoredMaps)
        assert isinstance(b, DenseMaps)
        assert (a.factors.mask.explicit is None) == (masked != "scattered")
        assert (a.item, a.heads, a.fidelity) == (b.item, b.heads, b.fidelity)
        one, other = (maps.window((1, 5), everything, everything) for maps in (a, b))
        assert np.array_equal(one.visible, other.visible)
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-5)
        np.testing.assert_allclose(one.scores, other.scores, atol=1e-5)


class Windows(nn.Module):
    """Heads that look 0, 1, 2 and 3 tokens around."""

    num_heads = HEADS

    def forward(self, x: Tensor, by_hand: bool) -> Tensor:
        features = x.reshape(*x.shape[:2], HEADS, -1).transpose(1, 2)
        positions = torch.arange(x.shape[1])
        visible = (positions[:, None] - positions).abs() <= torch.arange(HEADS)[:, None, None]
        scores = features @ features.transpose(-1, -2)
        output: Tensor = (
            scores.masked_fill(~visible, float("-inf")).softmax(-1) @ features
            if by_hand
            else functional.scaled_dot_product_attention(features, features, features, visible[None])
        )
        return output


@pytest.mark.parametrize("by_hand", [True, False])
def test_heads_see_their_own_cells_together_or_alone(by_hand: bool) -> None:
    model, x = Windows(), torch.randn(1, 7, WIDTH)
    recording = recorded(model, x, by_hand)
    assert recording.remarks == ()
    distance = np.abs(np.arange(7)[:, None] - np.arange(7))
    maps = maps_of(recording)
    assert np.array_equal(maps.visible, [distance <= head for head in range(HEADS)])
    assert not maps.weights[1, distance > 1].any()
    alone = recorded(model, x, by_hand, heads=[2])
    assert alone.remarks == ()
    assert np.array_equal(maps_of(alone).visible, distance <= 2)


@pytest.mark.parametrize("by_hand", [True, False])
def test_scores_that_are_no_numbers_are_refused_with_their_layer(by_hand: bool) -> None:
    second = Nano(by_hand)
    second.c_attn.bias.data[0] = float("nan")
    model = nn.Sequential(Nano(), second)
    with pytest.raises(AttnvizError, match=r"scores of layer 1 \(1\) are not finite"), attnviz.record(model):
        model(torch.randn(1, 5, WIDTH))


def test_recording_says_inside_the_block_that_it_is_still_running(tmp_path: Path) -> None:
    model, x = Nano(), torch.randn(1, 5, WIDTH)
    with attnviz.record(model) as recording:
        model(x)
        assert repr(recording) == "Recording of Nano, still running: it has its maps after the with block"
        for use in (
            lambda: recording.maps,
            lambda: recording.settings,
            lambda: recording.text,
            lambda: recording.layers,
            recording.show,
            lambda: recording.save(tmp_path / "x.safetensors"),
        ):
            with pytest.raises(
                AttnvizError, match=r"the recording has no (\w+) while its with block runs; read \1 after the block"
            ):
                use()
        assert not hasattr(recording, "no_such_name")
        assert recording._repr_html_() is None
    assert repr(recording).startswith("Recording of Nano, in order of its layers:")


def test_recording_is_after_the_block_like_any_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = Nano()
    recording = recorded(model, torch.randn(1, 5, WIDTH))
    assert type(recording) is DrawableRecording
    assert replace(recording, seed=3).maps is recording.maps
    with pytest.raises(FrozenInstanceError):
        recording.seed = 3  # type: ignore[misc]
    recording.save(tmp_path / "run.safetensors")
    assert attnviz.load(tmp_path / "run.safetensors").maps[0].heads == recording.maps[0].heads
    recording.show(heads="2")
    assert "0.2" in capsys.readouterr().out


def test_recording_of_a_block_that_failed_has_no_maps() -> None:
    with pytest.raises(RuntimeError, match="shapes"), attnviz.record(Nano()) as recording:
        torch.ones(2, 3) @ torch.ones(2, 3)
    assert repr(recording) == "Recording of Nano, empty, since its with block failed"
    with pytest.raises(AttnvizError, match="the recording has no maps, since its with block failed"):
        recording.maps  # noqa: B018


def test_by_gives_the_maps_that_show_by_draws() -> None:
    module = attnviz.MultiHeadAttention(embed_dim=8, num_heads=2)
    recording = recorded(module, torch.rand(1, 7, 8), tokens=tokenize("It rains. We stay in."))
    parts = cell_maps(recording.by("sentences").maps[0])
    sums = parts.window((1,), slice(0, 2), slice(0, 2)).weights[0]
    weights = cells(recording).window((1,), slice(0, 7), slice(0, 7)).weights[0]
    for row, queries in enumerate((slice(0, 3), slice(3, 7))):
        for column, keys in enumerate((slice(0, 3), slice(3, 7))):
            assert abs(sums[row, column] - weights[queries, keys].sum(axis=1).mean()) < 1e-6
    with pytest.raises(AttnvizError, match="by='turns' needs a chat"):
        recording.by("turns")
