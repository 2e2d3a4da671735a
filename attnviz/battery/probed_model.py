"""Runs a model on any tokens and scores its heads: by the weight on cells that count, or by what they retrieve.

A retrieval head attends to the token of a needle that the model writes next (Wu et al. 2024).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attnviz.base.arrays import BoolArray, Float64Array, IntArray
from attnviz.base.errors import AttnvizError
from attnviz.capture.calls.attention_call import AttentionCall
from attnviz.capture.capture_block import CaptureBlock
from attnviz.capture.flow.sites import CallSite
from attnviz.capture.options import CaptureOptions
from attnviz.models.reading.example import Example
from attnviz.models.reading.reader import FRAME_TEXT, Reader
from attnviz.models.reading.settings import ModelSettings
from attnviz.models.sources import UNPROBED, open_reader, refuse_untrained
from attnviz.text.head_name import HeadName
from attnviz.text.samples import read_sample
from attnviz.text.selection import Selection
from attnviz.text.tokens import Tokens

BATCH_TEXTS = 16
MIN_WORDS = 512  # a vocabulary with fewer ordinary tokens is not that of a language
LENGTHS, DEPTHS = (64, 128, 256, 512), 5  # tokens of a haystack, and depths of the needle in it
QUESTION_TOKENS = 4  # first tokens of a random needle, which are repeated as the question
RANDOM_NEEDLE = 16  # tokens of a random needle
NEEDLE = " The secret of the old lighthouse is a green lantern under seven grey stones."
QUESTION = " What is the secret? The secret of the old lighthouse is"
ANSWER = " a green lantern under seven grey stones."


@dataclass(frozen=True, eq=False)
class Probe:
    """A text, and the cells whose weight is the score of a head on it."""

    ids: IntArray  # the ids of the tokens, ``(tokens,)``
    # the cells that count, ``(queries, keys)``; the score is the mean, over queries with any such cell, of the weight
    # on their cells
    cells: BoolArray


@dataclass(frozen=True, eq=False)
class ProbedModel:
    """A model that the battery runs on token ids."""

    module: nn.Module  # the model
    name: str  # the name of the model
    read: Callable[[str], Tokens] | None  # tokenizes a text; ``None`` if the vocabulary is not that of a language
    ordinary_ids: IntArray  # the ids of the ordinary tokens
    prefix_ids: IntArray  # the ids of the special tokens before a text
    suffix_ids: IntArray  # the ids of the special tokens after a text
    limit: int | None  # the length in tokens of the longest text that the model reads; ``None`` for no limit
    # returns the keyword arguments of the module for token ids, ``(texts, tokens)``
    inputs_of: Callable[[Tensor], dict[str, Any]]
    # texts whose words name parts of a picture, with the cells of these parts, and their controls; ``None`` if the
    # model has no such words
    region_probes: tuple[list[Probe], list[Probe]] | None = None

    def framed(self, ids: IntArray) -> IntArray:
        """Returns the ids with the special tokens before and after them."""
        return np.concatenate([self.prefix_ids, ids, self.suffix_ids])

    @property
    def device(self) -> torch.device:
        """The device of the model's weights."""
        return next(self.module.parameters()).device

    def run(self, ids: Sequence[IntArray], receive: Callable[[CallSite, tuple[int, ...], AttentionCall], None]) -> Any:
        """Runs the model over texts of equal length, passes each attention call to ``receive``, and returns the output.

        Args:
            ids: the ids of each text, ``(tokens,)``.
        """

        modules: dict[int, str] = {}  # by layer

        def receive_whole_text(site: CallSite, heads: tuple[int, ...], call: AttentionCall, first_head: int) -> None:
            """Passes a call of self-attention to ``receive``."""
            module = modules.setdefault(site.layer, site.module)
            if site.kind == "cross" or first_head or site.module != module:
                raise AttnvizError(
                    f"layer {site.layer} of {self.name} has cross-attention or several attention calls; the battery "
                    "needs one call of self-attention per layer"
                )
            if call.shape[0] != len(ids):
                raise AttnvizError(
                    f"layer {site.layer} of {self.name} attends over {call.shape[0]} of {len(ids)} texts at a time; "
                    "the battery needs a model that attends over all texts of a batch at once"
                )
            receive(site, heads, call)

        block = CaptureBlock(self.module, CaptureOptions(selection=Selection(), receive=receive_whole_text))
        token_ids = torch.from_numpy(np.stack(ids)).to(self.device)
        with block, torch.inference_mode():
            output = self.module(**self.inputs_of(token_ids))
        block.capture.finish()
        return output

    def scores(self, probes: Sequence[Probe]) -> tuple[dict[HeadName, Float64Array], dict[HeadName, Float64Array]]:
        """Returns the scores of each head, and the scores of uniform attention over the visible keys.

        Returns:
            Two dictionaries by head, each of ``(probes,)``; NaN for a probe on which the head's layer made no call.
        """
        scores_by_head, uniform_by_head = dict[HeadName, Float64Array](), dict[HeadName, Float64Array]()
        for indices in _batches_of_one_length([probe.ids for probe in probes]):
            cells = torch.from_numpy(np.stack([probes[index].cells for index in indices])).to(self.device)

            def receive(
                site: CallSite,
                heads: tuple[int, ...],
                call: AttentionCall,
                indices: list[int] = indices,
                cells: Tensor = cells,
            ) -> None:
                """Stores a call's scores in ``scores_by_head``, and those of uniform attention in
                ``uniform_by_head``.
                """
                maps = call.maps(heads)
                visible = maps.visible.to(self.device).float()
                uniform_weights = visible / visible.sum(-1, keepdim=True).clamp(min=1)
                for table, weights in ((scores_by_head, maps.weights.float()), (uniform_by_head, uniform_weights)):
                    scores = _mean_weight(weights, cells[:, None]).double().cpu().expand(-1, len(heads)).numpy()
                    for column, head in enumerate(heads):
                        name = HeadName(site.layer, head)
                        table.setdefault(name, np.full(len(probes), np.nan))[indices] = scores[:, column]

            self.run([probes[index].ids for index in indices], receive)
        return dict(sorted(scores_by_head.items())), dict(sorted(uniform_by_head.items()))


def _mean_weight(weights: Tensor, cells: Tensor) -> Tensor:
    """Returns the mean weight on the counted cells of each map, ``(texts, heads)``."""
    has_cell = cells.any(-1)
    return ((weights * cells).sum(-1) * has_cell).sum(-1) / has_cell.sum(-1)


def _batches_of_one_length(texts: Sequence[IntArray]) -> Iterator[list[int]]:
    """Yields the indices of texts in batches of at most `BATCH_TEXTS` texts of one length."""
    by_length: dict[int, list[int]] = {}
    for index, ids in enumerate(texts):
        by_length.setdefault(len(ids), []).append(index)
    for indices in by_length.values():
        yield from (indices[start : start + BATCH_TEXTS] for start in range(0, len(indices), BATCH_TEXTS))


def open_probed(settings: ModelSettings) -> ProbedModel:
    """Opens the model that the settings name."""
    refuse_untrained(settings.model, UNPROBED)
    return probed_model(open_reader(settings, "predictions"))


def probed_model(reader: Reader) -> ProbedModel:
    """Returns the model of a reader; it reads no language if its vocabulary has fewer than `MIN_WORDS` tokens."""
    texts, probes = reader.region_probes(), None
    if texts is not None:
        ids, named_cells, other_cells = texts
        probes = list(map(Probe, ids, named_cells)), list(map(Probe, ids, other_cells))
    elif reader.read(Example(FRAME_TEXT)).context is not None:
        raise AttnvizError(f"{reader.settings.model} reads more than one text; choose a model that reads a single text")
    vocabulary = reader.vocabulary()
    return ProbedModel(
        module=reader.module,
        name=reader.name,
        read=reader.tokenize if len(vocabulary.ordinary_ids) >= MIN_WORDS else None,
        ordinary_ids=vocabulary.ordinary_ids,
        prefix_ids=vocabulary.prefix_ids,
        suffix_ids=vocabulary.suffix_ids,
        limit=reader.limit,
        inputs_of=reader.inputs_of,
        region_probes=probes,
    )


@dataclass(frozen=True, eq=False)
class _Haystack:
    """A text with a needle in it, followed by a question and its answer."""

    ids: IntArray  # the ids of all tokens
    # the first key of the needle, and the key after its last; in a text of words, of the answer in it
    needle: tuple[int, int]
    answer: IntArray  # the positions of the answer's tokens
    length: int  # the number of tokens before the question; in a text of words, the most that there may be
    depth: float  # the place of the needle, from 0 for the start to 1 for the end


@dataclass(frozen=True, eq=False)
class RetrievalScores:
    """The retrieval scores of the heads."""

    # by head, the share of the answer's tokens that it retrieves from the needle, one per haystack
    scores: dict[HeadName, Float64Array]
    # by head, the share of the answer's tokens for which it attends to another token of the needle
    controls: dict[HeadName, Float64Array]
    predicted_share: Float64Array  # the share of the answer's tokens that the model itself predicts, one per haystack
    haystacks: list[_Haystack]  # the haystacks

    @property
    def predictions(self) -> tuple[tuple[int, float, float], ...]:
        """Length and depth of each haystack, and the share of its answer that the model itself predicts."""
        return tuple(
            (haystack.length, haystack.depth, float(share))
            for haystack, share in zip(self.haystacks, self.predicted_share, strict=True)
        )


def retrieval_scores(model: ProbedModel, seed: int) -> RetrievalScores | None:
    """Returns the share of each answer that each head retrieves; ``None`` if the model predicts no next token.

    A token of the answer counts for a head if the model itself predicts it and the head's largest weight is on that
    token in the needle. For the control, the largest weight must be on another token in the needle. The model reads the
    true answer before each token (teacher forcing).
    """
    texts = haystacks(model, seed)
    scores: dict[HeadName, Float64Array] = {}
    controls: dict[HeadName, Float64Array] = {}
    predicted_share = np.zeros(len(texts))
    for text_index, haystack in enumerate(texts):
        top_keys: dict[HeadName, IntArray] = {}

        def receive(
            site: CallSite,
            heads: tuple[int, ...],
            call: AttentionCall,
            haystack: _Haystack = haystack,
            top_keys: dict[HeadName, IntArray] = top_keys,
        ) -> None:
            """Stores each head's key with the largest weight in ``top_keys``, for each query before an answer token."""
            weights = call.weights(heads, slice(int(haystack.answer[0]) - 1, int(haystack.answer[-1])))
            keys = weights[0].argmax(-1).cpu().numpy()
            top_keys.update({HeadName(site.layer, head): keys[index] for index, head in enumerate(heads)})

        output = model.run([haystack.ids], receive)
        logits = output if isinstance(output, Tensor) else getattr(output, "logits", None)
        if logits is None or logits.shape[1] != len(haystack.ids):
            return None
        predicted_ids = logits[0, haystack.answer - 1].float().argmax(-1).cpu().numpy()
        answer_ids = haystack.ids[haystack.answer]
        is_predicted = predicted_ids == answer_ids
        predicted_share[text_index] = is_predicted.mean()
        for head, keys in top_keys.items():
            in_needle = (keys >= haystack.needle[0]) & (keys < haystack.needle[1])
            is_target = haystack.ids[keys] == answer_ids
            for table, is_counted in (
                (scores, in_needle & is_target & is_predicted),
                (controls, in_needle & ~is_target),
            ):
                table.setdefault(head, np.zeros(len(texts)))[text_index] = is_counted.mean()
    return RetrievalScores(dict(sorted(scores.items())), controls, predicted_share, texts)


def haystacks(model: ProbedModel, seed: int) -> list[_Haystack]:
    """Returns the haystacks of several lengths and depths that the model can read; empty if it can read none.

    They are words if the model knows a language, else random tokens.
    """
    readable_haystacks = []
    for length in LENGTHS:
        for depth in np.linspace(0, 1, DEPTHS).tolist():
            haystack = (
                _haystack_of_words(model, length, depth)
                if model.read
                else _haystack_of_random_tokens(model, length, depth, seed)
            )
            if haystack is not None and (model.limit is None or len(haystack.ids) <= model.limit):
                readable_haystacks.append(haystack)
    return readable_haystacks


def _haystack_of_random_tokens(model: ProbedModel, length: int, depth: float, seed: int) -> _Haystack | None:
    """Returns random tokens with a needle, which is repeated at the end; ``None`` if the vocabulary is too small."""
    random = np.random.default_rng([seed, length, round(100 * depth)])  # seeds are whole numbers
    shuffled_ids = random.permutation(model.ordinary_ids)
    needle, other_ids = shuffled_ids[:RANDOM_NEEDLE], shuffled_ids[RANDOM_NEEDLE:]
    if not len(other_ids):
        return None
    hay = random.choice(other_ids, length - RANDOM_NEEDLE)
    index = round(depth * len(hay))
    ids = model.framed(np.concatenate([hay[:index], needle, hay[index:], needle]))
    start = len(model.prefix_ids) + index
    answer = np.arange(len(model.prefix_ids) + length + QUESTION_TOKENS, len(model.prefix_ids) + length + RANDOM_NEEDLE)
    return _Haystack(ids, (start, start + RANDOM_NEEDLE), answer, length, depth)


def _haystack_of_words(model: ProbedModel, length: int, depth: float) -> _Haystack | None:
    """Returns the start of a sample text with a sentence as its needle, then a question and its answer."""
    assert model.read is not None
    sentences = [part.strip() + "." for part in read_sample("long").replace("\n", " ").split(".") if part.strip()]
    free_tokens = length - len(model.read(NEEDLE))
    hay = list[str]()
    for sentence in sentences * 8:  # repeated, since the sample may be shorter than the longest haystack
        if len(model.read(" ".join([*hay, sentence]))) > free_tokens:
            break
        hay.append(sentence)
    index = round(depth * len(hay))
    text = " ".join(hay[:index]) + NEEDLE + " " + " ".join(hay[index:]) + QUESTION + ANSWER
    tokens = model.read(text)
    in_needle = _token_indices(tokens, text.index(ANSWER), len(ANSWER))
    answer = _token_indices(tokens, text.rindex(ANSWER), len(ANSWER))
    if not len(in_needle) or not np.array_equal(tokens.ids[in_needle], tokens.ids[answer]):
        return None
    return _Haystack(tokens.ids, (int(in_needle[0]), int(in_needle[-1]) + 1), answer, length, depth)


def _token_indices(tokens: Tokens, start: int, characters: int) -> IntArray:
    """Returns the indices of the tokens of a part of the text, without special tokens."""
    starts, stops = tokens.offsets.T
    # a token that is only the space at the start of the part belongs to the text before it
    return np.flatnonzero((stops > start + 1) & (starts < start + characters) & ~tokens.special)
