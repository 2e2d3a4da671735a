"""Several forward passes in one recording: the steps of a decoding become one map, other passes further texts."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional

import attnviz
from attnviz.capture.assembly import step_rows
from attnviz.capture.assembly.captured_call import CapturedCall
from attnviz.capture.assembly.step_rows import StepRows
from attnviz.capture.flow.sites import CallSite
from attnviz.maps.cell_maps import DenseMaps
from attnviz.maps.recording import Recording
from tests.small_models import GROUPED

WORDS, WIDTH, HEADS, WRITTEN = 61, 24, 4, 6
CACHED = GROUPED | {"vocab_size": WORDS, "max_position_embeddings": 64, "eos_token_id": None}
T5: dict[str, Any] = {
    "vocab_size": WORDS, "d_model": WIDTH, "d_kv": 6, "d_ff": 32, "num_layers": 2, "num_heads": HEADS,
    "decoder_start_token_id": 0, "eos_token_id": None,
}  # fmt: skip
MODELS: dict[str, Callable[[], Any]] = {
    "gpt2": lambda: transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=WORDS, n_embd=WIDTH, n_layer=2, n_head=HEADS, n_positions=64, **ENDLESS)
    ),
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**CACHED)),
    "mistral": lambda: transformers.MistralForCausalLM(transformers.MistralConfig(**CACHED, sliding_window=4)),
    "t5": lambda: transformers.T5ForConditionalGeneration(transformers.T5Config(**T5)),
}
ENDLESS: dict[str, Any] = {"eos_token_id": None, "bos_token_id": 1, "pad_token_id": 0}


@pytest.fixture(autouse=True)
def quiet_torch() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)


class Attention(nn.Module):
    """Causal attention with a cache of one's own: ``cache`` holds keys and values, or nothing yet."""

    reach: Tensor | None = None  # how many tokens before its own each head looks, ``(heads,)``; none for all

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x: Tensor, cache: list[Tensor]) -> Tensor:
        queries, keys, values = (
            part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.project(x).chunk(3, dim=-1)
        )
        cache.append(torch.stack([keys, values]))
        cache[:] = [torch.cat(cache, dim=-2)]
        keys, values = cache[0]
        past = keys.shape[-2] - queries.shape[-2]
        away = torch.arange(queries.shape[-2])[:, None] + past - torch.arange(keys.shape[-2])
        seen = away >= 0 if self.reach is None else (away >= 0) & (away <= self.reach[:, None, None])
        mixed = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=seen)
        return x + mixed.transpose(1, 2).flatten(2)


class Causal(nn.Module):
    """Two layers of it."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList([Attention() for _ in range(2)])

    def forward(self, ids: Tensor, caches: tuple[list[Tensor], ...] | None = None) -> Tensor:
        x: Tensor = self.embed(ids)
        for layer, cache in zip(self.layers, caches or ([], []), strict=True):
            x = layer(x, cache)
        return x


def assert_equal(steps: Recording, whole: Recording) -> None:
    """Every cell of one recording against the other."""
    assert [(maps.module, maps.kind, maps.item) for maps in steps.maps] == [
        (maps.module, maps.kind, maps.item) for maps in whole.maps
    ]
    for ours, theirs in zip(steps.maps, whole.maps, strict=True):
        assert isinstance(ours, DenseMaps)
        assert isinstance(theirs, DenseMaps)
        assert np.array_equal(ours.visible, theirs.visible)
        np.testing.assert_allclose(ours.weights, theirs.weights, atol=1e-6)
        seen = np.broadcast_to(ours.visible, ours.scores.shape)
        np.testing.assert_allclose(ours.scores[seen], theirs.scores[seen], atol=5e-6)


@pytest.mark.parametrize(
    ("name", "kernel", "cache"),
    [
        ("gpt2", "sdpa", "dynamic"),
        ("gpt2", "eager", "static"),
        ("gpt2", "sdpa", "none"),
        ("llama", "eager", "static"),
        ("llama", "sdpa", "dynamic"),
        ("mistral", "eager", "dynamic"),
        ("mistral", "eager", "static"),
        ("mistral", "sdpa", "dynamic"),
        ("t5", "sdpa", "dynamic"),
        ("t5", "eager", "static"),
        ("t5", "sdpa", "none"),
    ],
)
def test_steps_of_generation_equal_one_pass_over_the_final_text(name: str, kernel: str, cache: str) -> None:
    model = MODELS[name]().eval()
    model.set_attn_implementation(kernel)
    options: dict[str, Any] = {"use_cache": False} if cache == "none" else {}
    options |= {"cache_implementation": "static"} if cache == "static" else {}
    options |= {"max_new_tokens": WRITTEN, "min_new_tokens": WRITTEN, "do_sample": False}
    ids = torch.randint(3, WORDS, (2, 5))
    with attnviz.record(model) as steps:
        text = model.generate(ids, **options)
    assert torch.equal(text, model.generate(ids, **options))
    given = {"input_ids": ids, "decoder_input_ids": text[:, :-1]} if name == "t5" else {"input_ids": text[:, :-1]}
    with torch.no_grad(), attnviz.record(model) as whole:
        model(**given)
    assert_equal(steps, whole)
    assert steps.remarks[0] == "2 texts from 6 forward passes: each decoding step adds its rows."
    assert all(maps.fidelity is not None and maps.fidelity < 1e-5 for maps in steps.maps)


@pytest.mark.parametrize("cached", [True, False])
@torch.no_grad()
def test_a_decoding_loop_of_ones_own_becomes_one_map_with_the_labels_of_the_final_text(cached: bool) -> None:
    model, ids = Causal(), torch.randint(0, WORDS, (1, 3))
    cache: tuple[list[Tensor], ...] | None = ([], []) if cached else None
    written: list[str] = []
    with attnviz.record(model, tokens=lambda: written) as steps:
        text = ids
        for _ in range(4):
            last = model(text if cache is None or text is ids else text[:, -1:], cache)[:, -1:]
            text = torch.cat([text, last.argmax(-1) + 3], dim=1)
        written += [f"w{number}" for number in text[0].tolist()]
    with attnviz.record(model) as whole:
        model(text[:, :-1])
    assert_equal(steps, whole)
    assert steps.maps[0].query_tokens.labels == tuple(written[:-1])


@torch.no_grad()
def test_a_longer_text_is_another_one_where_its_first_tokens_look_at_the_new_ones() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(WORDS, WIDTH)

        def forward(self, ids: Tensor) -> Tensor:
            x: Tensor = self.embed(ids)
            features = x.view(*x.shape[:2], HEADS, -1).transpose(1, 2)
            return functional.scaled_dot_product_attention(features, features, features)

    model, ids = Both(), torch.randint(0, WORDS, (1, 6))
    with attnviz.record(model) as recording:
        model(ids[:, :4])
        model(ids)
    assert [len(maps.query_tokens) for maps in recording.maps] == [4, 6]


@torch.no_grad()
def test_steps_of_heads_that_see_different_cells_keep_each_heads_own() -> None:
    model, ids = Causal(), torch.randint(0, WORDS, (2, 7))
    model.layers[1].reach = torch.tensor([2, 3, 2, 9])
    cache: tuple[list[Tensor], ...] = ([], [])
    with attnviz.record(model) as steps:
        for start, stop in ((0, 3), (3, 4), (4, 7)):
            model(ids[:, start:stop], cache)
    with attnviz.record(model) as whole:
        model(ids)
    assert_equal(steps, whole)
    away = np.arange(7)[:, None] - np.arange(7)
    for maps in steps.maps:
        assert isinstance(maps, DenseMaps)
        reach = np.array([2, 3, 2, 9]) if maps.layer else np.array(9)
        assert np.array_equal(maps.visible, (away >= 0) & (away <= reach[..., None, None]))


@torch.no_grad()
def test_every_pass_that_goes_on_with_no_other_is_a_text_of_its_own() -> None:
    model, texts = Causal(), [torch.randint(0, WORDS, (2, count)) for count in (4, 6, 4)]
    alone = []
    for ids in texts:
        with attnviz.record(model) as single:
            model(ids)
        alone += [[maps for maps in single.maps if maps.item == item] for item in (0, 1)]
    labels = [[f"{number}.{place}" for place in range(len(pair[0].key_tokens))] for number, pair in enumerate(alone)]
    with attnviz.record(model, tokens=labels) as recording:
        for ids in texts:
            model(ids)
    assert [(maps.layer, maps.item) for maps in recording.maps] == [
        (layer, item) for layer in (0, 1) for item in range(6)
    ]
    assert recording.remarks[0] == "6 texts from 3 forward passes, in the order in which they ran."
    for maps in recording.maps:
        assert isinstance(maps, DenseMaps)
        expected = alone[maps.item][maps.layer]
        assert isinstance(expected, DenseMaps)
        assert np.array_equal(maps.weights, expected.weights)
        assert maps.query_tokens.labels == tuple(labels[maps.item])


@torch.no_grad()
def test_the_same_text_twice_is_two_texts_and_a_decoding_after_another_is_a_second_one() -> None:
    model, ids = Causal(), torch.randint(0, WORDS, (1, 4))
    with attnviz.record(model) as twice:
        model(ids)
        model(ids)
    assert [maps.item for maps in twice.maps if maps.layer == 0] == [0, 1]
    with attnviz.record(model) as decoded:
        for text in (ids, (ids + 1) % WORDS):
            cache: tuple[list[Tensor], ...] = ([], [])
            model(text, cache)
            model(text[:, :1], cache)
    assert [(maps.item, len(maps.query_tokens)) for maps in decoded.maps if maps.layer == 0] == [(0, 5), (1, 5)]


def passes_over(ids: Tensor, *steps: tuple[int, list[int]]) -> tuple[Causal, Recording]:
    """Returns a model and the recording of its passes: one over all ids, then each over ids after some cached keys."""
    model = Causal()
    cache: tuple[list[Tensor], ...] = ([], [])
    with torch.no_grad(), attnviz.record(model) as recording:
        model(ids, cache)
        for count, step in steps:
            for pairs in cache:
                pairs[:] = [pairs[0][..., :count, :]]
            model(torch.tensor([step]), cache)
    return model, recording


CONTEXT = [5, 6, 7, 8]


@pytest.mark.parametrize(
    ("steps", "texts", "remark"),
    [
        # The rows of a pass that begins where an earlier one began belong to another text.
        ([(4, [1, 2]), (4, [3, 4])], [[*CONTEXT, 1, 2], [*CONTEXT, 3, 4]], "first 4 tokens of text 0."),
        # A pass that begins within the last one may follow rejected drafts.
        (
            [(4, [1, 2]), (5, [3])],
            [[*CONTEXT, 1, 2], [*CONTEXT, 1, 3]],
            "first 5 tokens of text 0; text 0 may end in rejected drafts.",
        ),
        # Rows that are computed again stay in their text.
        ([(4, [1]), (4, [1, 2])], [[*CONTEXT, 1, 2]], "each decoding step adds its rows."),
        # The first text goes on after the second one.
        (
            [(4, [1]), (4, [2, 3]), (6, [9])],
            [[*CONTEXT, 1], [*CONTEXT, 2, 3, 9]],
            "first 4 tokens of text 0.",
        ),
    ],
)
def test_a_pass_after_earlier_keys_continues_its_text_and_begins_another_where_rows_would_be_lost(
    steps: list[tuple[int, list[int]]], texts: list[list[int]], remark: str
) -> None:
    model, recording = passes_over(torch.tensor([CONTEXT]), *steps)
    assert recording.remarks[-1].endswith(remark)
    assert {maps.item for maps in recording.maps} == set(range(len(texts)))
    for item, text in enumerate(texts):
        with torch.no_grad(), attnviz.record(model) as whole:
            model(torch.tensor([text]))
        for ours, theirs in zip([maps for maps in recording.maps if maps.item == item], whole.maps, strict=True):
            assert isinstance(ours, DenseMaps)
            assert isinstance(theirs, DenseMaps)
            np.testing.assert_allclose(ours.weights, theirs.weights, atol=1e-6)


@torch.no_grad()
def test_texts_that_a_cache_puts_in_another_order_go_on_in_that_order() -> None:
    model, ids = Causal(), torch.randint(0, WORDS, (2, 4))
    cache: tuple[list[Tensor], ...] = ([], [])
    with attnviz.record(model) as steps:
        model(ids, cache)
        for pairs in cache:
            pairs[:] = [pairs[0].flip(1)]
        model(ids[:, :1], cache)
    with attnviz.record(model) as whole:
        model(torch.cat([ids.flip(0), ids[:, :1]], dim=1))
    assert_equal(steps, whole)
    assert "put the texts in another order" in steps.remarks[-1]


@torch.no_grad()
def test_a_pass_over_keys_that_no_pass_computed_is_a_text_of_its_own_over_the_keys_that_it_saw() -> None:
    model, ids = Causal(), torch.randint(0, WORDS, (1, 4))
    cache: tuple[list[Tensor], ...] = ([], [])
    with attnviz.record(model) as recording:
        model(ids, cache)
        for pairs in cache:
            pairs[:] = [torch.cat([torch.randn_like(pairs[0][..., :2, :]), pairs[0][..., 2:, :]], dim=-2)]
        model(ids[:, :1], cache)
        model(ids[:, :1], cache)
    shapes = [(maps.item, len(maps.query_tokens), len(maps.key_tokens)) for maps in recording.maps if maps.layer == 0]
    assert shapes == [(0, 4, 4), (1, 2, 6)]
    assert recording.remarks[1] == (
        "Forward pass 2 reads cached keys that no pass before computed (2 of 4 in pass 2): the rows are texts of "
        "their own, over the keys that they saw."
    )


def test_rows_that_are_too_long_to_be_joined_are_texts_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_rows, "LONG_MAP_TOKENS", 4)
    _, recording = passes_over(torch.tensor([CONTEXT]), (4, [1]), (5, [2]))
    shapes = [(maps.item, len(maps.query_tokens), len(maps.key_tokens)) for maps in recording.maps if maps.layer == 0]
    assert shapes == [(0, 4, 4), (1, 2, 6)]
    assert "Forward pass 2 continues a text whose map is too long to be joined" in recording.remarks[1]


@torch.no_grad()
def test_a_pass_over_one_token_after_equal_passes_over_two_has_all_heads() -> None:
    # Of a single query transformers folds the heads that share a key in another way.
    model, ids = MODELS["mistral"]().eval(), torch.randint(3, WORDS, (1, 14))
    cache = transformers.DynamicCache(config=model.config)
    with attnviz.record(model) as steps:
        for start, end in itertools.pairwise((0, 9, 11, 13, 14)):
            model(ids[:, start:end], past_key_values=cache)
    with attnviz.record(model) as whole:
        model(ids)
    assert_equal(steps, whole)


def small_llama(seed: int) -> Any:
    """Returns a small model with weights of its own, that never ends its text."""
    torch.manual_seed(seed)
    model = MODELS["llama"]().eval()
    model.generation_config.eos_token_id = None
    return model


def test_a_model_for_drafts_is_left_out_and_said() -> None:
    model, draft = small_llama(0), small_llama(1)
    options: dict[str, Any] = {"max_new_tokens": 6, "do_sample": False, "assistant_model": draft}
    with torch.no_grad(), attnviz.record(model) as recording:
        text = model.generate(torch.arange(4, 9)[None], attention_mask=torch.ones(1, 5), **options)
    assert [(maps.layer, maps.module) for maps in recording.maps] == [
        (layer, f"model.layers.{layer}.self_attn") for layer in range(2)
    ]
    assert len(recording.maps[0].query_tokens) == text.shape[1] - 1
    assert any(remark.startswith("Left out: attention of LlamaForCausalLM, which") for remark in recording.remarks)
    assert any(remark.endswith("rows of drafts that were rejected.") for remark in recording.remarks)


def test_layers_that_read_keys_of_others_have_the_rows_that_they_computed() -> None:
    settings: dict[str, Any] = CACHED | {
        "num_hidden_layers": 4,
        "vocab_size_per_layer_input": WORDS,
        "hidden_size_per_layer_input": 8,
        "head_dim": 6,
        "global_head_dim": 6,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "num_kv_shared_layers": 2,
    }
    model: Any = transformers.Gemma4ForCausalLM(transformers.Gemma4TextConfig(**settings))
    with torch.no_grad(), attnviz.record(model.eval()) as recording:
        model.generate(torch.arange(5, 9)[None], attention_mask=torch.ones(1, 4), max_new_tokens=4, do_sample=False)
    assert [(len(maps.query_tokens), len(maps.key_tokens)) for maps in recording.maps] == [(7, 7)] * 2 + [(4, 7)] * 2
    assert "In text 0, layers 2-3 computed the last 4 of 7 rows." in recording.remarks


@torch.no_grad()
def test_a_part_of_the_model_called_twice_by_itself_reads_two_texts() -> None:
    model = MODELS["t5"]().eval()
    with attnviz.record(model) as recording:
        for _ in range(2):
            model.encoder(torch.randint(3, WORDS, (1, 5)))
    assert [(maps.layer, maps.item) for maps in recording.maps] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def cross_call(queries: int, keys: int) -> CapturedCall:
    """Returns a call of cross-attention whose keys have no marks."""
    site = CallSite(0, None, "layers.0", "cross", "layers", "cross")
    fields = {"visible": np.ones((queries, keys), dtype=bool)}
    return CapturedCall(site, (0, 1), (1, 2, queries, keys), None, [None], DenseMaps, [fields])


@pytest.mark.parametrize(("keys", "places"), [(7, [(3, 0, 7)]), (6, [])])
def test_a_place_whose_keys_have_no_marks_is_possible_but_not_proven(
    keys: int, places: list[tuple[int, int, int]]
) -> None:
    found = StepRows.begin(cross_call(3, 7)).places(cross_call(1, keys))
    assert [(place.position, place.column, place.keys) for place in found] == places
    assert not any(place.has_equal_keys for place in found)
