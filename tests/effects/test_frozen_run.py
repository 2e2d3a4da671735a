"""Routes against a sum over all paths, and against the logit and its direct parts in models of transformers."""

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from attnviz.base.errors import AttnvizError
from attnviz.effects.routes import Routes
from attnviz.effects.score_attribution import composition
from attnviz.models.trained import load_model, start_tokens
from tests.capture.small_architectures import build, candidates
from tests.effects.examples import (
    HEADS,
    IDS,
    LAYERS,
    MODELS,
    SIZE,
    TOKEN,
    TOKENS,
    WIDTH,
    Handmade,
    States,
    logit_attribution,
    model_of,
    routes,
)

LAST = TOKENS - 1


class Layer(nn.Module):
    """A layer with grouped heads, optionally with biases, gates on heads' outputs, and norms after both parts."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        bias = kind == "biases"
        self.kind = kind
        self.query, self.gate = nn.Linear(WIDTH, WIDTH, bias=bias), nn.Linear(WIDTH, WIDTH)
        self.key, self.value = nn.Linear(WIDTH, WIDTH // 2, bias=bias), nn.Linear(WIDTH, WIDTH // 2, bias=bias)
        self.out = nn.Linear(WIDTH, WIDTH, bias=bias)
        self.up, self.down = nn.Linear(WIDTH, 30, bias=bias), nn.Linear(30, WIDTH, bias=bias)
        norm = nn.LayerNorm if bias else nn.RMSNorm
        self.norms = nn.ModuleList([norm(WIDTH) for _ in range(4)])
        self.mixed_norm = nn.LayerNorm(WIDTH, bias=False)

    def forward(self, features: Tensor) -> Tensor:
        normed = self.norms[0](features)
        queries, keys, values = (
            each(normed).unflatten(-1, (-1, SIZE)).transpose(1, 2) for each in (self.query, self.key, self.value)
        )
        keys, values = (each.repeat_interleave(2, dim=1) for each in (keys, values))
        scores = queries @ keys.mT * SIZE**-0.5
        self.weights = scores.masked_fill(torch.ones(TOKENS, TOKENS).triu(1).bool(), -torch.inf).softmax(-1)
        self.values = values
        mixed = (self.weights @ values).transpose(1, 2).flatten(2)
        if self.kind == "gates":
            mixed = mixed * self.gate(normed).sigmoid()
        self.mixed = mixed
        if self.kind == "norms of heads":
            mixed = self.mixed_norm(mixed)
        attended = self.out(mixed)
        features = features + (self.norms[1](attended) if self.kind == "norms after" else attended)
        inner = self.down(functional.silu(self.up(self.norms[2](features))))
        result: Tensor = features + (self.norms[3](inner) if self.kind == "norms after" else inner)
        return result


class Stack(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, WIDTH)
        self.layers = nn.ModuleList([Layer(kind) for _ in range(LAYERS)])
        self.norm, self.unembedding = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, 50)

    def forward(self, ids: Tensor) -> Tensor:
        self.streams = [self.embedding(ids)]
        for layer in self.layers:
            self.streams.append(layer(self.streams[-1]))
        logits: Tensor = self.unembedding(self.norm(self.streams[-1]))
        return logits


def stack(kind: str) -> Stack:
    torch.manual_seed(1)
    model = Stack(kind)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape) * 0.2)
    return model.eval()


def scaled_by(norm: nn.Module, rows: Tensor, at: Tensor) -> Tensor:
    """Returns rows through a norm without its bias, with its scale frozen at other rows."""
    weight = norm.get_parameter("weight")
    if isinstance(norm, nn.LayerNorm):
        deviation = (at.var(-1, correction=0, keepdim=True) + norm.eps).sqrt()
        return (rows - rows.mean(-1, keepdim=True)) / deviation * weight
    return rows * (at.square().mean(-1, keepdim=True) + torch.finfo(at.dtype).eps).rsqrt() * weight


def written(layer: Layer, values: Tensor, head: int, query: int, key: int, before: Tensor) -> Tensor:
    """Returns what a head writes into a query for the values ``(features of a head)`` of a key."""
    mixed = layer.weights[0, head, query, key] * values
    part = slice(head * SIZE, (head + 1) * SIZE)
    normed = layer.norms[0](before)
    if layer.kind == "gates":
        mixed = mixed * layer.gate(normed)[query].sigmoid()[part]
    all_features = torch.zeros(WIDTH)
    all_features[part] = mixed
    if layer.kind == "norms of heads":
        all_features = scaled_by(layer.mixed_norm, all_features, layer.mixed[0, query])
    moved = layer.out.weight @ all_features
    if layer.kind != "norms after":
        return moved
    attended = layer.out((layer.weights @ layer.values).transpose(1, 2).flatten(2))[0, query]
    return scaled_by(layer.norms[1], moved, attended)


def over_all_paths(model: Stack, token: int) -> dict[tuple[int, int, int, int], float]:
    """Returns what each edge of two layers adds to the last logit: directly, and through each head of layer 1."""
    model(IDS)
    first, second = model.layers
    assert isinstance(first, Layer)
    assert isinstance(second, Layer)
    embedded, middle, last = (stream[0] for stream in model.streams)
    direction = model.unembedding.weight[token]

    def logit(moved: Tensor) -> float:
        return float(scaled_by(model.norm, moved, last[LAST]) @ direction)

    sums = {}
    for head, query, key in product(range(HEADS), range(TOKENS), range(TOKENS)):
        if query == LAST:
            moved = written(second, second.values[0, head, key], head, query, key, middle)
            sums[1, head, query, key] = logit(moved)
        moved = written(first, first.values[0, head, key], head, query, key, embedded)
        total = logit(moved) if query == LAST else 0.0
        for later in range(HEADS):
            rows = second.value.weight.view(-1, SIZE, WIDTH)[later // 2]
            values = rows @ scaled_by(second.norms[0], moved, middle[query])
            total += logit(written(second, values, later, LAST, query, middle))
        sums[0, head, query, key] = total
    return sums


def by_place(found: Routes) -> dict[tuple[int, int, int, int], float]:
    return {(edge.layer, edge.head, edge.query, edge.key): edge.adds for edge in found.edges}


@pytest.mark.parametrize("kind", ["biases", "no biases", "gates", "norms after", "norms of heads"])
def test_edges_equal_the_sum_over_all_paths_of_two_layers(kind: str) -> None:
    model = stack(kind)
    with torch.no_grad():
        expected = over_all_paths(model, TOKEN)
    found = by_place(routes(model, IDS, TOKEN, share=0))
    for place, adds in expected.items():
        assert found.get(place, 0.0) == pytest.approx(adds, abs=1e-5), place
    assert max(abs(adds) for place, adds in expected.items() if place[0] == 0 and place[2] != LAST) > 0.01


@pytest.mark.parametrize("kind", ["biases", "no biases", "gates", "norms after"])
def test_scores_are_sums_over_embedding_heads_mlps_and_biases_of_what_plain_tensors_say(kind: str) -> None:
    model, head, query = stack(kind), 2, 6
    with torch.no_grad():
        model(IDS)
        first, second = model.layers
        assert isinstance(first, Layer)
        assert isinstance(second, Layer)
        embedded, middle = (stream[0] for stream in model.streams[:2])
        normed = second.norms[0](middle)
        vector = second.query(normed)[query, head * SIZE : (head + 1) * SIZE] * SIZE**-0.5
        rows = second.key.weight.view(-1, SIZE, WIDTH)[head // 2]

        def scores(features: Tensor) -> Tensor:
            result: Tensor = scaled_by(second.norms[0], features, middle) @ rows.T @ vector
            return result

        expected, sources = {"embedding": scores(embedded)}, {}
        for other in range(HEADS):
            edges = torch.zeros(TOKENS, TOKENS, WIDTH)  # key of the edge, query of the edge
            for place in product(range(TOKENS), range(TOKENS)):
                edges[place[::-1]] = written(first, first.values[0, other, place[1]], other, *place, embedded)
            expected[f"0.{other}"] = scores(edges.sum(0))
            sources[f"0.{other}"] = scores(edges).abs().argmax(0)
        reading = torch.eye(WIDTH)
        query_rows, key_rows, value_rows = (
            weight.view(-1, SIZE, WIDTH)[number] @ scaled_by(second.norms[0], reading, middle[None, place]).T
            for weight, number, place in (
                (second.query.weight, head, query),
                (second.key.weight, head // 2, int(second.weights[0, head, query].argmax())),
                (second.value.weight, head // 2, int(second.weights[0, head, query].argmax())),
            )
        )
        gate = second.gate(normed)[query].sigmoid() if kind == "gates" else torch.ones(WIDTH)
        writes = (second.out.weight * gate)[:, head * SIZE : (head + 1) * SIZE]
        matrices = {"QK": query_rows.T @ key_rows * SIZE**-0.5, "OV": writes @ value_rows}
        in_all = (second.key(normed)[:, (head // 2) * SIZE :][:, :SIZE]) @ vector
    found = composition(model, IDS, 1, head, query)
    parts = dict(zip(found.names, found.parts, strict=True))
    for name, part in expected.items():
        np.testing.assert_allclose(parts[name], part, atol=1e-5, err_msg=name)
    np.testing.assert_allclose(found.scores, in_all, atol=1e-5)
    if kind != "norms after":  # whose norm is no part of the matrix
        for name, matrix in matrices.items():
            expected_values = torch.linalg.svdvals(matrix)[:SIZE]
            np.testing.assert_allclose(found.singular_values[name], expected_values, rtol=1e-4, err_msg=name)
    assert found.difference < 1e-5
    assert set(found.names) == {*expected, "0.mlp"} | ({"biases"} if kind == "biases" else set())
    for name, tokens in sources.items():
        np.testing.assert_array_equal(found.sources[found.names.index(name)], tokens)
    assert (found.sources[found.names.index("0.mlp")] == -1).all()
    np.testing.assert_array_equal(found.visible, np.arange(TOKENS) <= query)


def test_the_induction_circuit_of_the_trained_model_appears_by_itself() -> None:
    tokens = start_tokens("the cat sat. the cat", "word")
    found = routes(load_model(), torch.tensor(tokens.ids[None]), 2)
    labels = tokens.labels
    assert [(edge.name, labels[edge.key], edge.query) for edge in found.edges[:2]] == [
        ("1.0", "sat", 6),
        ("1.1", "sat", 6),
    ]
    assert [(read.name, read.key, read.earlier.name, labels[read.earlier.key]) for read in found.reads] == [
        ("1.0", 3, "0.0", "cat"),
        ("1.1", 3, "0.0", "cat"),
    ]
    for read in found.reads:
        found_scores = composition(load_model(), torch.tensor(tokens.ids[None]), 1, int(read.name[-1]))
        part = found_scores.parts[found_scores.names.index("0.0")]
        assert read.earlier.adds == pytest.approx(part[3], abs=1e-5)
        assert read.score == pytest.approx(found_scores.scores[3], abs=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_what_crosses_any_level_of_any_model_is_its_logit(name: str) -> None:
    model = model_of(name, MODELS[name])
    inputs = {"input_ids": IDS, "use_cache": False}
    found, direct = routes(model, inputs, TOKEN, share=0), logit_attribution(model, inputs, TOKEN)
    np.testing.assert_allclose(found.crossing, direct.logit, atol=1e-5)
    assert found.layers == tuple(range(LAYERS))
    last_layer = {(edge.name, edge.key): edge.adds for edge in found.edges if edge.layer == LAYERS - 1}
    for head in direct.heads:
        assert head.keys is not None
        if head.layer == LAYERS - 1:
            adds = [last_layer.get((head.name, key), 0.0) for key in range(TOKENS)]
            np.testing.assert_allclose(adds, head.keys, atol=1e-6)
    if "bias" not in found.sources:  # which an MLP writes with the rest
        mlp = float(found.sources["mlp"][-1].sum())
        assert mlp == pytest.approx(direct[f"{LAYERS - 1}.mlp"].adds, abs=1e-6)


def test_only_the_last_token_keeps_a_stream_that_nothing_later_reads_elsewhere() -> None:
    found = routes(stack("biases"), IDS, TOKEN, share=0)
    assert np.abs(found.stream[1]).min() > 1e-4
    np.testing.assert_allclose(found.stays[1, :LAST], 0, atol=1e-5)  # biases of values are no part of the stream
    np.testing.assert_allclose(found.stream[2, :LAST], 0, atol=1e-5)


def test_routes_of_a_difference_are_the_difference_of_routes() -> None:
    model = model_of("Gemma2ForCausalLM", MODELS["Gemma2ForCausalLM"])
    ours, theirs = (by_place(routes(model, IDS, token, share=0)) for token in (TOKEN, 9))
    difference = routes(model, IDS, TOKEN, versus=9, share=0)
    for place, adds in by_place(difference).items():
        assert adds == pytest.approx(ours[place] - theirs[place], abs=1e-6)
    assert difference.crossing[0] == pytest.approx(difference.logit, abs=1e-5)


def test_the_gradient_of_a_wide_unembedding_is_that_of_a_narrow_one() -> None:
    narrow, wide = stack("no biases"), stack("no biases")
    narrow.unembedding, wide.unembedding = (nn.Linear(WIDTH, size, bias=False) for size in (50, 40 * WIDTH))
    with torch.no_grad():
        wide.unembedding.weight[:50] = narrow.unembedding.weight
    expected = by_place(routes(narrow, IDS, TOKEN, position=-3, share=0))
    found = by_place(routes(wide, IDS, TOKEN, position=-3, share=0))
    assert found == {place: pytest.approx(adds, abs=1e-6) for place, adds in expected.items()}


@pytest.mark.parametrize("embedding", [nn.Embedding, States])
def test_a_model_written_by_hand_has_routes(embedding: type[nn.Embedding]) -> None:
    torch.manual_seed(0)
    model = Handmade()
    model.embedding = embedding(50, WIDTH)
    found = routes(model, IDS, TOKEN, share=0)
    logit = float(model(IDS)[0, -1, TOKEN].detach())
    np.testing.assert_allclose(found.crossing, logit, atol=1e-5)
    assert {edge.name for edge in found.edges} == {f"0.{head}" for head in range(HEADS)}


def test_edges_of_less_than_the_share_are_left_out_and_the_rest_says_how_much_it_holds() -> None:
    model = load_model()
    tokens = start_tokens("the cat sat. the cat", "word")
    ids = torch.tensor(tokens.ids[None])
    everything, few = routes(model, ids, 2, share=0), routes(model, ids, 2, share=0.1)
    assert [edge.name for edge in few.edges] == ["1.0", "1.1"]
    assert {(edge.key, edge.query) for edge in few.edges} == {(3, 6)}
    assert few.kept == pytest.approx(
        sum(abs(edge.adds) for edge in few.edges) / sum(abs(edge.adds) for edge in everything.edges)
    )
    np.testing.assert_array_equal(few.stream, everything.stream)


@pytest.mark.parametrize("fails", [False, True])
def test_the_model_is_as_it_was(fails: bool) -> None:
    model: Any = model_of("GPT2LMHeadModel", MODELS["GPT2LMHeadModel"]).train()
    model.transformer.ln_f.weight.requires_grad_(False)
    state = {name: each.clone() for name, each in model.state_dict().items()}
    if fails:
        with pytest.raises(AttnvizError, match="no token id 50"):
            routes(model, IDS, 50)
    else:
        routes(model, IDS, TOKEN)
    assert all(torch.equal(state[name], each) for name, each in model.state_dict().items())
    assert all(each.requires_grad == (name != "transformer.ln_f.weight") for name, each in model.named_parameters())
    assert all(each.grad is None for each in model.parameters())
    assert model.training


# In-place sums, grouped experts, sinks, several streams, views of a cache, cross-attention, pictures among the tokens,
# norms that are written into, several residual streams
@pytest.mark.parametrize(
    "kind",
    ["falcon", "deepseek_v3", "gpt_oss", "whisper", "git", "kimi_linear", "xlm", "hy_v4"],
)
def test_routes_sum_to_the_logit_of_models_written_in_other_ways(kind: str) -> None:
    model = build(kind, "narrow", MODEL_FOR_CAUSAL_LM_MAPPING_NAMES).eval()
    [inputs, *_] = (inputs for inputs in candidates(model, kind) if runs(model, inputs))
    inputs = {name: each[:1] if isinstance(each, Tensor) and each.dim() else each for name, each in inputs.items()}
    found = routes(model, inputs, TOKEN, share=0)
    with torch.no_grad():
        logit = float(model(**inputs).logits[0, -1, TOKEN])
    np.testing.assert_allclose(found.crossing, logit, atol=1e-5)
    assert found.kept == pytest.approx(1)
    assert len(found.edges) > TOKENS


@pytest.mark.parametrize("kind", ["bloom", "gemma3_text", "llama4_text", "deepseek_v3", "gpt_oss", "bert"])
def test_scores_of_any_layout_are_the_sum_of_their_parts(kind: str) -> None:
    model = build(kind, "narrow", MODEL_FOR_CAUSAL_LM_MAPPING_NAMES).eval()
    [inputs, *_] = (inputs for inputs in candidates(model, kind) if runs(model, inputs))
    inputs = {name: each[:1] if isinstance(each, Tensor) and each.dim() else each for name, each in inputs.items()}
    found = composition(model, inputs, 1, 3)
    assert found.difference < 1e-5
    assert {"embedding", "0.mlp", "0.0", "0.3"} <= set(found.names)
    assert set(found.singular_values) == {"QK", "OV"}


def test_composition_is_refused_with_a_reason_where_scores_are_no_sum() -> None:
    model = build("xlnet", "narrow", MODEL_FOR_CAUSAL_LM_MAPPING_NAMES).eval()
    [inputs, *_] = (inputs for inputs in candidates(model, "xlnet") if runs(model, inputs))
    inputs = {name: each[:1] if isinstance(each, Tensor) and each.dim() else each for name, each in inputs.items()}
    with pytest.raises(AttnvizError, match=r"scores of head 1\.0 are not products of queries .* use attnviz explain"):
        composition(model, inputs, 1, 0)
    with pytest.raises(AttnvizError, match=r"no output projection of head 1\.9 was found"):
        composition(model, inputs, 1, 9)


def runs(model: Any, inputs: dict[str, Any]) -> bool:
    try:
        with torch.no_grad():
            model(**inputs)
    except Exception:
        return False
    return True
