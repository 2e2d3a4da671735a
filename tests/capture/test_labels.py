"""Labels stand at their tokens, whatever the padding, prefix and order of a batch; what is not used is said."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from numpy.random import Generator
from torch import Tensor, nn
from torch.nn import functional

import attnviz
from attnviz.capture.assembly.captured_call import CapturedCall
from attnviz.capture.capture_block import CaptureBlock
from attnviz.capture.flow.sites import CallSite
from attnviz.capture.labels import CaptureOptions, GivenLabels, LabelsOfIds
from attnviz.maps.cell_maps import DenseMaps
from attnviz.maps.recording import Recording
from attnviz.models.huggingface.tokens import tokenize_text
from attnviz.text.selection import Selection
from attnviz.text.tokens import Tokens
from tests.text.made_tokenizers import made_tokenizer
from tests.today import SEED, WHOLE

QUERIES, KEYS = ("a", "b", "c"), ("s", "t", "u", "v")
PADDING, WORDS, WIDTH = 0, 97, 8


def labels(kind: Any, part: Any, queries: int, keys: int, **given: Any) -> list[tuple[str, ...]]:
    """Returns the labels of queries and keys of the second text of a call."""
    site = CallSite(0, None, "layers.0", kind, "layers", part)
    call = CapturedCall(site, (0,), (2, 1, queries, keys), None, [None, None], DenseMaps, [{}, {}])
    tokens = GivenLabels(given.get("tokens"), given.get("context"), [call], given.get("has_decoder", False))
    return [each.labels for each in tokens.tokens_of(call, item=1)]


@pytest.mark.parametrize(
    ("call", "given", "expected"),
    [
        (("self", "decoder", 3, 3), {"tokens": QUERIES, "context": KEYS}, [QUERIES, QUERIES]),
        (("cross", "cross", 3, 4), {"tokens": QUERIES, "context": KEYS}, [QUERIES, KEYS]),
        (("self", "encoder", 4, 4), {"tokens": QUERIES, "context": KEYS}, [KEYS, KEYS]),
        (("self", "encoder", 3, 3), {"tokens": QUERIES}, [QUERIES, QUERIES]),
        (("self", "encoder", 3, 3), {"tokens": QUERIES, "has_decoder": True}, [("0", "1", "2")] * 2),
        (("cross", "cross", 2, 4), {"tokens": QUERIES, "context": KEYS}, [("0", "1"), KEYS]),
        (("cross", "cross", 1, 4), {"tokens": KEYS}, [("0",), KEYS]),
        (("cross", "cross", 4, 4), {"tokens": KEYS}, [KEYS, ("0", "1", "2", "3")]),
        (("cross", "cross", 1, 2), {"tokens": KEYS}, [("0",), ("0", "1")]),
        (("self", "decoder", 3, 5), {"tokens": QUERIES}, [QUERIES, ("0", "1", *QUERIES)]),
        (("self", "encoder", 3, 4), {"tokens": QUERIES, "context": KEYS}, [QUERIES, KEYS]),
        (("self", "decoder", 3, 4), {"tokens": KEYS}, [KEYS[1:], KEYS]),
        (("self", "decoder", 5, 3), {"tokens": QUERIES}, [("0", "1", "2", "3", "4"), QUERIES]),
        (("self", "decoder", 2, 2), {"tokens": [Tokens.numbered(3), Tokens.numbered(2)]}, [("0", "1")] * 2),
    ],
)  # fmt: skip
def test_labels_go_where_their_number_fits(call: Any, given: dict[str, Any], expected: list[tuple[str, ...]]) -> None:
    assert labels(*call, **given) == expected


class Unet(nn.Module):
    """Patches that look at each other, and at the words of a prompt, in modules that no decoder holds."""

    def __init__(self) -> None:
        super().__init__()
        self.attn1, self.attn2 = (nn.MultiheadAttention(WIDTH, 2, batch_first=True) for _ in range(2))

    def forward(self, patches: Tensor, words: Tensor) -> Tensor:
        patches = patches + self.attn1(patches, patches, patches)[0]
        output: Tensor = self.attn2(patches, words, words)[0]
        return output


def test_patches_have_their_labels_in_self_attention_beside_cross_attention_without_a_decoder() -> None:
    cases: list[tuple[dict[str, Any], tuple[str, ...], tuple[str, ...]]] = [
        ({"tokens": KEYS, "context": QUERIES}, KEYS, QUERIES),
        ({"tokens": KEYS}, KEYS, ("0", "1", "2")),
        ({"tokens": QUERIES}, ("0", "1", "2", "3"), QUERIES),
    ]
    for given, of_patches, of_words in cases:
        module = Unet()
        with attnviz.record(module, **given) as recording:
            module(torch.randn(1, 4, WIDTH), torch.randn(1, 3, WIDTH))
        found = [(maps.query_tokens.labels, maps.key_tokens.labels) for maps in recording.maps]
        assert found == [(of_patches, of_patches), (of_patches, of_words)]
        assert recording.remarks == ()


class Pipeline(nn.Module):
    """Draws noise, and denoises it by the words of a prompt, which may attend to each other."""

    def __init__(self, reads: bool = False) -> None:
        super().__init__()
        self.words, self.unet = nn.Embedding(WORDS, WIDTH), Unet()
        self.reader = nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=True) if reads else nn.Identity()

    def forward(self) -> Tensor:
        output: Tensor = self.unet(torch.randn(1, 4, WIDTH), self.reader(self.words(torch.tensor([[3, 4, 5]]))))
        return output


@pytest.mark.parametrize("reads", [True, False], ids=["words that attend", "words that are only looked at"])
def test_patches_after_words_have_no_labels_of_the_words(reads: bool) -> None:
    module, words = Pipeline(reads), ("a", "red", "cat")
    with torch.no_grad(), attnviz.record(module, tokens=words) as recording:
        module()
    labels = [(maps.query_tokens.labels, maps.key_tokens.labels) for maps in recording.maps]
    numbers = tuple("0123")
    assert labels == [(words, words)] * reads + [(numbers, numbers), (numbers, words)]


def test_noise_that_a_model_draws_itself_is_another_input_than_its_words() -> None:
    module = Pipeline()
    with attnviz.record(module, tokens=KEYS, context=QUERIES) as recording:
        module()
    assert [maps.kind for maps in recording.maps] == ["self", "cross"]
    assert [maps.key_tokens.labels for maps in recording.maps] == [KEYS, QUERIES]


def test_steps_that_denoise_a_picture_are_texts_of_their_own_over_one_prompt() -> None:
    module, words = Unet(), torch.randn(1, 3, WIDTH)
    with attnviz.record(module, attention="cross", tokens=KEYS, context=QUERIES) as recording:
        patches = torch.randn(1, 4, WIDTH)
        for _ in range(3):
            patches = patches - module(patches, words)
    assert [maps.item for maps in recording.maps] == [0, 1, 2]
    assert {(maps.query_tokens.labels, maps.key_tokens.labels) for maps in recording.maps} == {(KEYS, QUERIES)}
    assert recording.remarks == ("3 texts from 3 forward passes, in the order in which they ran.",)


class Reader(nn.Module):
    """One layer of attention over embedded ids, after a soft prompt and the keys of a cache."""

    def __init__(self, causal: bool, prompt: int, cached: int) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(WORDS, WIDTH), nn.Embedding(40, WIDTH)
        self.causal, self.prompt, self.cached = causal, prompt, cached

    def forward(self, ids: Tensor) -> Tensor:
        embedded = self.embedding(ids) + self.positions(torch.arange(ids.shape[1])[None])
        texts = torch.cat([torch.randn(len(ids), self.prompt, WIDTH), embedded], dim=1)
        keys = torch.cat([torch.randn(len(ids), self.cached, WIDTH), texts], dim=1)
        before = self.prompt + self.cached
        visible = functional.pad(ids != PADDING, (before, 0), value=True)[:, None, None]
        if self.causal:
            visible = visible & torch.ones(texts.shape[1], keys.shape[1], dtype=torch.bool).tril(self.cached)
        output: Tensor = functional.scaled_dot_product_attention(texts[:, None], keys[:, None], keys[:, None], visible)
        return output


def recorded(module: nn.Module, batches: list[Tensor], tokens: Any) -> Recording:
    block = CaptureBlock(module, CaptureOptions(selection=Selection(), tokens=tokens))
    with torch.inference_mode(), block:
        for ids in batches:
            module(ids)
    return block.recording()


def names_of(ids: np.ndarray) -> list[str]:
    return [f"w{number}" for number in ids]


def tokens_with_ids(ids: np.ndarray) -> Tokens:
    return replace(Tokens.numbered(len(ids)), labels=tuple(names_of(ids)), ids=np.array(ids))


def drawn_batch(random: Generator) -> tuple[list[np.ndarray], Tensor]:
    """Returns the ids of some texts, all different, and the batch with its padding at either side."""
    texts = [random.integers(1, WORDS, random.integers(2, 8)) for _ in range(random.integers(1, 5))]
    width = max(map(len, texts)) + int(random.integers(0, 3))
    at_end = random.integers(2) == 1
    rows = [np.pad(ids, (0, width - len(ids)) if at_end else (width - len(ids), 0)) for ids in texts]
    return texts, torch.from_numpy(np.stack(rows))


@pytest.mark.parametrize("number", range(400 if WHOLE else 12))
def test_no_token_of_a_drawn_batch_has_a_label_of_another_and_what_has_none_is_said(number: int) -> None:
    random = np.random.default_rng((SEED, number))
    texts, batch = drawn_batch(random)
    prompt, cached = random.choice([(0, 0), (0, 0), (2, 0), (0, 3)])
    form = random.choice(["real", "all", "ids", "tokenizer", "shuffled", "shuffled ids", "too long"])
    order = random.permutation(len(texts)) if form.startswith("shuffled") else np.arange(len(texts))
    given: Any = [names_of(texts[index]) for index in order]
    if form == "all":
        given = [names_of(row) for row in batch.numpy()]
    elif form.endswith("ids"):
        given = [tokens_with_ids(texts[index]) for index in order]
    elif form == "tokenizer":
        given = LabelsOfIds(lambda ids: tokens_with_ids(np.array(ids)))
    elif form == "too long":
        given = [names * 9 for names in given]
    recording = recorded(Reader(bool(random.integers(2)), prompt, cached), [batch], given)

    lengths = [len(ids) for ids in texts]
    # Lists of equal lengths in another order look as if they were in the order of the batch.
    is_hidden = (
        form == "shuffled" and [lengths[index] for index in order] == lengths and any(order != np.arange(len(order)))
    )
    missing = 0
    for maps in recording.maps:
        keys = maps.key_tokens.labels[prompt + cached :]
        assert maps.key_tokens.labels[: prompt + cached] == tuple(map(str, range(prompt + cached)))
        if any(label.startswith("w") for label in keys):
            assert maps.query_tokens.labels == maps.key_tokens.labels[cached:]
        for place, (label, token) in enumerate(zip(keys, batch[maps.item].tolist(), strict=True), prompt + cached):
            right = f"w{token}" if token != PADDING or form == "all" else "[pad]"
            missing += label != right and token != PADDING and not is_hidden
            assert is_hidden or label in (right, str(place)), (form, maps.item, place)
    assert not missing or recording.remarks, form
    assert form in ("too long", "shuffled") or not missing, (form, recording.remarks)
    assert form != "too long" or missing
    assert bool(recording.remarks) == bool(
        missing or prompt or (form == "shuffled" and [lengths[index] for index in order] != lengths)
    )


def test_remarks_say_which_labels_are_not_used_and_how_many_would_fit() -> None:
    module, batch = Reader(causal=False, prompt=0, cached=0), torch.tensor([[3, 4, 5, 6], [7, 8, 9, 0], [1, 2, 0, 0]])
    three, two = names_of(np.arange(3)), names_of(np.arange(2))
    cases: list[tuple[Any, tuple[str, ...]]] = [
        (lambda: ["a"] * 9, ("Not used: the labels in tokens of texts 0-2: 9 labels for 4 tokens.",)),
        (three, ("Not used: the labels in tokens of texts 0, 2: 3 labels for 4 tokens.",)),
        ([["a"] * 4, three, two, two, two], ("Not used: lists 3-4 in tokens, since there are 3 texts.",)),
        ([["a"] * 4, three], ("Without labels: texts 2, since tokens has 2 lists.",)),
        ([["a"] * 4, three, two], ()),
    ]
    for given, remarks in cases:
        assert recorded(module, [batch], given).remarks == remarks


def test_patches_given_as_tokens_of_a_detector_are_advised_as_its_context() -> None:
    torch.manual_seed(0)
    detector = nn.Transformer(WIDTH, 2, 1, 1, 16, batch_first=True)
    with attnviz.record(detector, tokens=KEYS) as recording:
        detector(torch.randn(1, 4, WIDTH), torch.randn(1, 1, WIDTH))
    advice = "Not used: the labels in tokens of text 0: 4 labels for 1 token; give them as context, which fits."
    assert advice in recording.remarks
    assert all("0" in maps.key_tokens.labels for maps in recording.maps)


def test_lists_of_several_passes_go_to_the_texts_of_their_length() -> None:
    lengths = [2, 5, 3, 7]
    texts = [np.arange(1, count + 1) + start for start, count in zip(range(10, 50, 10), lengths, strict=True)]
    longest_first = sorted(range(4), key=lambda text: -lengths[text])
    batches = [
        torch.nn.utils.rnn.pad_sequence([torch.from_numpy(texts[text]) for text in pair], batch_first=True)
        for pair in pairwise(longest_first)
    ][::2]
    recording = recorded(Reader(causal=False, prompt=0, cached=0), batches, [names_of(ids) for ids in texts])
    for maps, text in zip(recording.maps, longest_first, strict=True):
        assert maps.key_tokens.labels[: lengths[text]] == tuple(names_of(texts[text]))
        assert set(maps.key_tokens.labels[lengths[text] :]) <= {"[pad]"}
    assert any("in another order than the lists in tokens" in remark for remark in recording.remarks)


@pytest.mark.parametrize("is_bare", [False, True], ids=["of transformers", "of tokenizers"])
def test_a_tokenizer_labels_the_ids_that_the_model_reads(is_bare: bool) -> None:
    from transformers import PreTrainedTokenizerFast

    make: Any = PreTrainedTokenizerFast  # whose constructor has no types
    tokenizer = make(tokenizer_object=made_tokenizer("words in lower case"), pad_token="[UNK]")
    texts = ["the cat sat.", "who asked?", "12 cats"]  # ids of lower case do not tell the case
    batch = tokenizer(texts[::-1], padding=True, return_tensors="pt")
    module = Reader(causal=False, prompt=0, cached=0)
    module.embedding = nn.Embedding(len(tokenizer), WIDTH)
    given = made_tokenizer("words in lower case") if is_bare else tokenizer
    with torch.inference_mode(), attnviz.record(module, tokens=given) as recording:
        module(batch["input_ids"])
    for maps, text in zip(recording.maps, texts[::-1], strict=True):
        expected = tokenize_text(tokenizer, text)
        tokens = maps.key_tokens.first(len(expected))
        assert (tokens.labels, tokens.ids.tolist()) == (expected.labels, expected.ids.tolist())
        assert set(maps.key_tokens.labels[len(expected) :]) <= {"[pad]"}
    assert recording.remarks == ()


def test_refuses_labels_that_are_none_and_says_what_labels_are() -> None:
    with pytest.raises(attnviz.AttnvizError, match="tokens is int; give a list of labels, a tokenizer, or a function"):
        attnviz.record(Reader(causal=False, prompt=0, cached=0), tokens=5)  # type: ignore[arg-type]


def test_layers_share_the_tokens_of_a_text() -> None:
    class Twice(Reader):
        def forward(self, ids: Tensor) -> Tensor:
            super().forward(ids)
            return super().forward(ids)

    names = [["a", "b"], ["c", "d", "e"]]
    recording = recorded(Twice(causal=False, prompt=0, cached=0), [torch.tensor([[3, 4, 0], [5, 6, 7]])], names)
    maps = {item: [maps for maps in recording.maps if maps.item == item] for item in (0, 1)}
    assert [len(layers) for layers in maps.values()] == [2, 2]
    assert all(first.key_tokens is second.key_tokens is first.query_tokens for first, second in maps.values())
