"""Several passes over drawn prompts and caches against one eager pass, or against the eager weights of each step."""

import copy
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

import attnviz
from attnviz.maps.cell_maps import DenseMaps
from attnviz.maps.recording import Recording
from tests.small_models import GROUPED
from tests.today import SEED, WHOLE

WORDS = 40
COMMON = GROUPED | {"vocab_size": WORDS, "max_position_embeddings": 64, "eos_token_id": None}
GEMMA4: dict[str, Any] = COMMON | {
    "vocab_size_per_layer_input": WORDS,
    "hidden_size_per_layer_input": 8,
    "num_hidden_layers": 4,
    "head_dim": 6,
    "global_head_dim": 6,
    "sliding_window": 32,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "num_kv_shared_layers": 2,
}
MODELS: dict[str, Callable[[], Any]] = {
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**COMMON)),
    "mistral": lambda: transformers.MistralForCausalLM(transformers.MistralConfig(**COMMON, sliding_window=4)),
    "bloom": lambda: transformers.BloomForCausalLM(  # its keys have no positions
        transformers.BloomConfig(vocab_size=WORDS, hidden_size=24, n_layer=2, n_head=4, eos_token_id=None)
    ),
    "gemma4": lambda: transformers.Gemma4ForCausalLM(transformers.Gemma4TextConfig(**GEMMA4)),
}


class Rounding(DynamicLayer):  # type: ignore[no-untyped-call]
    """A cache that rounds all keys but the last ones."""

    exact = 3

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **options: Any) -> tuple[Tensor, Tensor]:
        keys, values = super().update(key_states, value_states, *args, **options)
        old = max(keys.shape[2] - self.exact, 0)
        step = keys[:, :, :old].abs().amax(-1, keepdim=True).clamp(min=1e-9) / 7
        self.keys = torch.cat([torch.round(keys[:, :, :old] / step) * step, keys[:, :, old:]], 2)
        return keys, values


class Offloading(DynamicLayer):  # type: ignore[no-untyped-call]
    """A cache that holds its keys elsewhere, and copies them for each pass."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **options: Any) -> tuple[Tensor, Tensor]:
        keys, values = super().update(key_states, value_states, *args, **options)
        self.keys, self.values = keys.clone(), values.clone()
        return keys, values


class Dropping(DynamicLayer):  # type: ignore[no-untyped-call]
    """A cache that keeps one early key and the last four, and notes which keys each pass saw."""

    early = (0, 0)  # for each key head, the place of the early key among the cached ones

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0
        self.cached = np.zeros((2, 0), dtype=int)  # ``(key heads, keys)``, the places of the cached keys in the text
        self.seen: list[Any] = []

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **options: Any) -> tuple[Tensor, Tensor]:
        keys, values = super().update(key_states, value_states, *args, **options)
        new = np.arange(self.count, self.count + key_states.shape[2])
        self.cached = np.concatenate([self.cached, [new, new]], axis=1)
        self.seen.append(self.cached)
        self.count += len(new)
        if self.cached.shape[1] > 5:
            last = range(self.cached.shape[1] - 4, self.cached.shape[1])
            kept = np.array([[early, *last] for early in self.early])
            index = torch.tensor(kept)[None, :, :, None].expand(len(keys), -1, -1, keys.shape[3])
            self.keys, self.values = keys.gather(2, index), values.gather(2, index)
            self.cached = np.take_along_axis(self.cached, kept, axis=1)
        return keys, values

    def get_seq_length(self) -> int:
        return self.count

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        cached = self.cached.shape[1]
        return cached + query_length, self.count - cached


class DroppingInEachHead(Dropping):  # type: ignore[no-untyped-call]
    early = (0, 1)


def model_of(name: str, draw: Random) -> tuple[Any, Any]:
    """Returns a model with drawn weights, and its eager copy."""
    torch.manual_seed(draw.randrange(10**6))
    torch.set_num_threads(1)
    model = MODELS[name]().eval()
    model.generation_config.eos_token_id = None
    with torch.no_grad():
        model.get_input_embeddings().weight[0].normal_()  # keys of padding would all be 0
    eager = copy.deepcopy(model)
    eager.set_attn_implementation("eager")
    return model, eager


def prompt_of(draw: Random, texts: int = 1) -> Tensor:
    """Returns a prompt in which words return, so that prompt lookup finds drafts."""
    words = [draw.randrange(3, 9) for _ in range(draw.choice([2, 3, 4]))]
    return torch.tensor([(words * 8)[: draw.randrange(4, 14)]] * texts) + torch.arange(texts)[:, None]


def assert_weights(recording: Recording, text: Tensor, eager: Any, item: int = 0) -> None:
    """Compares all maps of one text of a recording with an eager pass over the text that was kept."""
    with torch.no_grad():
        expected = eager(text, output_attentions=True).attentions
    all_maps = [maps for maps in recording.maps if maps.item == item]
    assert len(all_maps) == len(expected)
    for maps, weights in zip(all_maps, expected, strict=True):
        assert isinstance(maps, DenseMaps)
        assert maps.weights.shape[2] == text.shape[1]
        rows = maps.weights.shape[1]
        np.testing.assert_allclose(maps.weights, weights[0, :, -rows:], atol=1e-5)


LOOKUP: dict[str, Any] = {"prompt_lookup_num_tokens": 3}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("llama", {}),
    ("llama", {"cache_implementation": "static"}),
    ("llama", {"use_cache": False}),
    ("llama", {"num_beams": 3}),
    ("llama", LOOKUP),
    ("llama", {"assistant_model": "llama"}),
    ("bloom", LOOKUP),
    ("mistral", {}),
    ("mistral", {"cache_implementation": "static"}),
    ("mistral", LOOKUP),
    ("gemma4", {}),
]


@pytest.mark.parametrize("number", range(6 if WHOLE else 1))
@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
def test_rows_of_a_generation_equal_one_pass_over_the_text_that_was_kept(
    name: str, options: dict[str, Any], number: int
) -> None:
    draw = Random(f"{SEED} {number} {name}")
    model, eager = model_of(name, draw)
    ids = prompt_of(draw)
    if "assistant_model" in options:
        options = options | {"assistant_model": model_of("llama", draw)[0]}
    count = draw.choice([1, 4, 7, 10])
    with torch.no_grad(), attnviz.record(model) as recording:
        text = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False, **options
        )
    if "num_beams" not in options:
        assert_weights(recording, text[:, :-1], eager)
        return
    with torch.no_grad():
        best = eager(text[:, :-1], output_attentions=True).attentions[0][0]
    beams = [maps for maps in recording.maps if maps.layer == 0 and isinstance(maps, DenseMaps)]
    assert len(beams) == 3
    assert any(np.allclose(maps.weights, best, atol=1e-5) for maps in beams)


@pytest.mark.parametrize("number", range(6 if WHOLE else 1))
@pytest.mark.parametrize("cache", [Offloading, Rounding, Dropping, DroppingInEachHead])
def test_rows_over_a_cache_that_changes_are_those_that_each_step_computed(cache: type, number: int) -> None:
    draw = Random(f"{SEED} {number} {cache.__name__}")
    model, eager = model_of("llama", draw)
    ids, count = prompt_of(draw), draw.randrange(4, 9)
    options: dict[str, Any] = {"max_new_tokens": count, "do_sample": False}
    options["attention_mask"] = torch.ones_like(ids)
    with torch.no_grad(), attnviz.record(model) as recording:
        model.generate(ids, **options, past_key_values=Cache(layer_class_to_replicate=cache))
    options |= {"output_attentions": True, "return_dict_in_generate": True}
    eager_cache: Any = Cache(layer_class_to_replicate=cache)
    steps = eager.generate(ids, **options, past_key_values=eager_cache).attentions
    length = ids.shape[1] + count - 1
    for layer, maps in enumerate(recording.maps):
        assert isinstance(maps, DenseMaps)
        assert maps.item == 0
        expected = np.zeros((4, length, length), dtype=np.float32)
        for step, all_weights in enumerate(steps):
            weights = all_weights[layer][0].numpy()
            _, queries, keys = weights.shape
            first_row = ids.shape[1] + step - 1 if step else 0
            for head in range(4):
                places = np.arange(keys)
                if issubclass(cache, Dropping):
                    places = eager_cache.layers[layer].seen[step][head // 2]
                expected[head, first_row : first_row + queries, places] = weights[head].T
        np.testing.assert_allclose(maps.weights, expected, atol=1e-5)
    remarks: dict[type, str] = {Offloading: "adds its rows", Rounding: "cached keys differ from those computed"}
    remark = remarks.get(cache, "keys that the cache dropped are hidden")
    assert any(remark in each for each in recording.remarks)


@pytest.mark.parametrize("number", range(9 if WHOLE else 1))
@pytest.mark.parametrize("name", ["llama", "mistral", "bloom"])
@torch.no_grad()
def test_each_question_over_one_context_is_a_text_with_its_own_steps(name: str, number: int) -> None:
    draw = Random(f"{SEED} {number} {name} questions")
    model, eager = model_of(name, draw)
    context = prompt_of(draw)
    # Questions that begin with the same words would be one text as long as they are the same.
    words = draw.sample(range(9, WORDS), 9)
    questions = [torch.tensor([words[3 * number : 3 * number + draw.choice([1, 2, 3])]]) for number in range(3)]
    in_turns = draw.choice([True, False])
    texts: list[Tensor] = []
    with attnviz.record(model) as recording:
        cache = DynamicCache(config=model.config) if name == "mistral" else DynamicCache()
        model(context, past_key_values=cache)
        caches = [copy.deepcopy(cache) for _ in questions]

        def step(number: int, ids: Tensor) -> None:
            if len(texts) <= number:
                texts.append(context)
            texts[number] = torch.cat([texts[number], ids], dim=1)
            model(ids, past_key_values=caches[number])

        for question, ids in enumerate(questions):
            step(question, ids)
            if not in_turns:
                step(question, torch.tensor([[draw.randrange(3, WORDS)]]))
        for question in range(len(questions)):
            if in_turns:
                step(question, torch.tensor([[draw.randrange(3, WORDS)]]))
    assert {maps.item for maps in recording.maps} == set(range(len(questions)))
    for item, text in enumerate(texts):
        assert_weights(recording, text, eager, item)
    branches = [remark for remark in recording.remarks if "begins with the first" in remark]
    assert len(branches) == len(questions) - 1


@torch.no_grad()
def test_a_context_repeated_for_a_batch_of_questions_begins_each_text() -> None:
    draw = Random(f"{SEED} batch")
    model, eager = model_of("llama", draw)
    context, questions = prompt_of(draw), torch.tensor([[20, 21, 22], [30, 31, 32]])
    with attnviz.record(model) as recording:
        cache = DynamicCache()
        model(context, past_key_values=cache)
        cache.batch_repeat_interleave(2)
        model(questions, past_key_values=cache)
    for item in (0, 1):
        assert_weights(recording, torch.cat([context, questions[item : item + 1]], dim=1), eager, item)


class OwnCache(nn.Module):
    """Causal attention with a buffer of its own: pages in a drawn order, read by an index, or a ring of five keys."""

    def __init__(self, way: str, draw: Random, *, by_hand: bool) -> None:
        super().__init__()
        self.project = nn.Linear(32, 96)
        self.way, self.by_hand = way, by_hand
        self.size = 5 if way == "ring" else 16
        self.pages = torch.tensor(draw.sample(range(4), 4))
        self.keys, self.values = torch.zeros(2, 1, 4, self.size, 8)
        self.positions = torch.full((self.size,), -1)

    def forward(self, x: Tensor, position: int = 0) -> Tensor:
        parts = self.project(x).view(1, -1, 3, 4, 8).permute(2, 0, 3, 1, 4)
        queries, keys, values = parts
        at = torch.arange(position, position + x.shape[1])
        slots = at % self.size if self.way == "ring" else self.pages[at // 4] * 4 + at % 4
        if self.way == "index_select":
            self.keys.index_copy_(2, slots, keys)
            self.values.index_copy_(2, slots, values)
        else:
            self.keys[:, :, slots], self.values[:, :, slots] = keys, values
        self.positions[slots] = at
        read = torch.arange(self.size)
        if self.way != "ring":
            everything = torch.arange(position + x.shape[1])
            read = self.pages[everything // 4] * 4 + everything % 4
        if self.way == "index_select":
            keys, values = self.keys.index_select(2, read), self.values.index_select(2, read)
        elif self.way == "pages":
            keys, values = self.keys[:, :, read], self.values[:, :, read]
        else:
            keys, values = self.keys, self.values
        seen = (self.positions[read] <= at[:, None]) & (self.positions[read] >= 0)
        self.last = parts[0], parts[1], seen, self.positions[read].clone()
        if self.by_hand:
            mixed: Tensor = ((queries @ keys.mT) * 8**-0.5).masked_fill(~seen, -torch.inf).softmax(-1) @ values
            return mixed
        return functional.scaled_dot_product_attention(queries, keys, values, attn_mask=seen)


@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize("way", ["pages", "index_select", "ring"])
@torch.no_grad()
def test_keys_of_a_buffer_in_another_order_stand_at_their_place_in_the_text(way: str, by_hand: bool) -> None:
    draw = Random(f"{SEED} {way} {by_hand}")
    torch.manual_seed(draw.randrange(10**6))
    model = OwnCache(way, draw, by_hand=by_hand).eval()
    x = torch.randn(1, 13, 32)
    ends = [draw.randrange(2, 6)]
    while ends[-1] < 13:
        ends.append(min(ends[-1] + draw.choice([1, 1, 2]), 13))
    queries, keys, _ = model.project(x).view(1, 13, 3, 4, 8).permute(2, 0, 3, 1, 4)
    seen = torch.zeros(13, 13, dtype=torch.bool)
    with attnviz.record(model) as recording:
        for start, end in zip([0, *ends], ends, strict=False):
            model(x[:, start:end], start)
            _, _, visible, positions = model.last
            seen[start:end, positions[positions >= 0]] = visible[:, positions >= 0]
    expected = (queries @ keys.mT * 8**-0.5)[0].masked_fill(~seen, -torch.inf).softmax(-1)
    (maps,) = recording.maps
    assert isinstance(maps, DenseMaps)
    assert np.array_equal(maps.visible, seen)
    np.testing.assert_allclose(maps.weights, expected, atol=1e-6)
    assert not any("picked" in remark for remark in recording.remarks)
