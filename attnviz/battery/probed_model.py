"""Runs a model on any tokens and scores its heads: by the weight on cells that count, or by what they retrieve.

A retrieval head attends to the token of a needle that the model writes next (Wu et al. 2024).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attnviz.base.arrays import BoolArray, Float64Array, IntArray
from attnviz.base.errors import AttnvizError
from attnviz.capture.calls.attention_call import AttentionCall
from attnviz.capture.capture_block import CaptureBlock
from attnviz.capture.flow.sites import CallSite
from attnviz.capture.labels import CaptureOptions
from attnviz.capture.model_calls import logits_of_last
from attnviz.effects.measures import predictions_in
from attnviz.models.reading.example import Example
from attnviz.models.reading.settings import ModelSettings
from attnviz.models.sources import UNPROBED, open_reader, refuse_untrained
from attnviz.text.head_name import HeadName
from attnviz.text.samples import read_sample
from attnviz.text.selection import Selection
from attnviz.text.tokens import Tokens

BATCH_TEXTS = 16
MIN_WORDS = 512  # a vocabulary with fewer ordinary tokens is not that of a language
LENGTHS, DEPTHS = (64, 128, 256, 512), 5  # tokens of a haystack, and depths of the needle in it
MOST_TOKENS = 1024  # more than any text of the battery has
QUESTION_TOKENS = 4  # first tokens of a random needle, which are repeated as the question
RANDOM_NEEDLE = 16  # tokens of a random needle
NEEDLE = " The secret of the old lighthouse is a green lantern under seven grey stones."
QUESTION = " What is the secret? The secret of the old lighthouse is"
ANSWER = " a green lantern under seven grey stones."


class SkippedTypeError(AttnvizError):
    """A model on which heads of one type cannot be told; the message says why."""


@dataclass(frozen=True, eq=False)
class Probe:
    """A text, and the cells whose weight is the score of a head on it."""

    ids: IntArray  # the ids of the tokens, ``(tokens,)``
    # what the weight of each cell counts, ``(queries, keys)``: mostly 0 or 1. The score is the mean, over queries with
    # a cell that counts, of the sum over their cells.
    cells: BoolArray | Float64Array


Advance = Callable[[Sequence[IntArray]], None]  # is told the texts that were run


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
    origins: tuple[str, ...] = ()  # remarks on weights that are not those of the model's files

    def framed(self, ids: IntArray) -> IntArray:
        """Returns the ids with the special tokens before and after them."""
        return np.concatenate([self.prefix_ids, ids, self.suffix_ids])

    @property
    def device(self) -> torch.device:
        """The device of the model's weights."""
        return next(self.module.parameters()).device

    def run(
        self,
        ids: Sequence[IntArray],
        receive: Callable[[CallSite, tuple[int, ...], AttentionCall], None],
        predicts_after: int | None = None,
    ) -> Any:
        """Runs the model over texts of equal length, and passes each attention call to ``receive``.

        Args:
            ids: the ids of each text, ``(tokens,)``.
            receive: takes the place of a call, its heads, and the call.
            predicts_after: the first token whose prediction is needed; the model may leave out those of earlier tokens.
                ``None`` for no predictions, so that the model's head need not run.

        Returns:
            The output of the model; ``None`` without predictions.
        """
        modules: dict[int, str] = {}  # by layer

        def receive_whole_text(site: CallSite, heads: tuple[int, ...], call: AttentionCall, first_head: int) -> None:
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

        stop = predicts_after is None
        block = CaptureBlock(self.module, CaptureOptions(selection=Selection(), stop=stop, receive=receive_whole_text))
        inputs, output = self.inputs_of(torch.from_numpy(np.stack(ids)).to(self.device)), None
        if predicts_after is not None:
            inputs |= logits_of_last(self.module, len(ids[0]) - predicts_after)
        with block, torch.inference_mode():
            output = self.module(**inputs)
        block.capture.finish()
        return output

    def scores(self, probes: Sequence[Probe], advance: Advance = lambda ids: None) -> dict[HeadName, Float64Array]:
        """Returns the scores of each head, ``(probes,)``; NaN for a probe on which the head's layer made no call.

        Every text runs once, even if several probes have it.
        """
        probes_of_text: dict[bytes, list[int]] = {}
        for index, probe in enumerate(probes):
            probes_of_text.setdefault(probe.ids.tobytes(), []).append(index)
        texts_of_length: dict[int, list[list[int]]] = {}
        for indices in probes_of_text.values():
            texts_of_length.setdefault(len(probes[indices[0]].ids), []).append(indices)

        scores_by_head = dict[HeadName, Float64Array]()
        for texts in texts_of_length.values():
            for start in range(0, len(texts), BATCH_TEXTS):
                batch = texts[start : start + BATCH_TEXTS]
                shares = list[Tensor]()  # of each cell's weight in the score of each probe: (probes, queries * keys)
                for indices in batch:
                    cells = torch.from_numpy(np.stack([probes[index].cells for index in indices])).float()
                    counted_queries = (cells != 0).any(-1).sum(-1)
                    shares.append(cells.flatten(1) / counted_queries[:, None])

                def receive(
                    site: CallSite,
                    heads: tuple[int, ...],
                    call: AttentionCall,
                    batch: list[list[int]] = batch,
                    shares: list[Tensor] = shares,
                ) -> None:
                    weights = call.maps(heads).weights.float()
                    for text, (indices, share) in enumerate(zip(batch, shares, strict=True)):
                        scores = share.to(weights.device) @ weights[text].flatten(1).T  # (probes, heads)
                        for head, head_scores in zip(heads, scores.T.double().cpu().numpy(), strict=True):
                            name = HeadName(site.layer, head)
                            scores_by_head.setdefault(name, np.full(len(probes), np.nan))[indices] = head_scores

                ids = [probes[indices[0]].ids for indices in batch]
                self.run(ids, receive)
                advance(ids)
        return dict(sorted(scores_by_head.items()))

    @cached_property
    def looks_ahead(self) -> bool:
        """True if a query of any head sees a later key."""
        sees_later_key = list[bool]()

        def receive(site: CallSite, heads: tuple[int, ...], call: AttentionCall) -> None:
            sees_later_key.append(bool(call.maps(heads).visible.triu(1).any()))

        self.run([self.framed(self.ordinary_ids[:4])], receive)  # any tokens do; 4 are enough for later keys
        return any(sees_later_key)


def open_probed(settings: ModelSettings) -> ProbedModel:
    """Opens the model that the settings name; it reads no language if its vocabulary is smaller than `MIN_WORDS`."""
    refuse_untrained(settings.model, UNPROBED)
    reader = open_reader(settings, "predictions")
    texts, region_probes = reader.region_probes(), None
    if texts is not None:
        ids, named_cells, other_cells = texts
        region_probes = list(map(Probe, ids, named_cells)), list(map(Probe, ids, other_cells))
    elif reader.read(Example(reader.frame_text)).context is not None:
        raise AttnvizError(f"{reader.settings.model} reads more than one text; choose a model that reads a single text")
    vocabulary = reader.vocabulary()
    return ProbedModel(
        module=reader.module,
        name=reader.name,
        read=reader.tokenize if len(vocabulary.ordinary_ids) >= MIN_WORDS else None,
        ordinary_ids=vocabulary.ordinary_ids,
        prefix_ids=vocabulary.prefix_ids,
        suffix_ids=vocabulary.suffix_ids,
        limit=reader.limit_for(MOST_TOKENS),
        inputs_of=reader.inputs_of,
        region_probes=region_probes,
        origins=reader.origins,
    )


@dataclass(frozen=True, eq=False)
class Haystack:
    """A text with a needle in it, followed by a question and its answer."""

    ids: IntArray  # the ids of all tokens
    # the first key of the needle, and the key after its last; in a text of words, of the answer in it
    needle: tuple[int, int]
    answer: IntArray  # the positions of the answer's tokens
    length: int  # the number of tokens before the question; in a text of words, the most that there may be
    depth: float  # the place of the needle, from 0 for the start to 1 for the end


def retrieval_scores(
    model: ProbedModel, haystacks: Sequence[Haystack], advance: Advance = lambda ids: None
) -> tuple[dict[HeadName, Float64Array], dict[HeadName, Float64Array], Float64Array]:
    """Returns the share of each answer that each head retrieves.

    Returned with it are the controls of the heads, and the share of the answer's tokens that the model itself predicts;
    each has one number per haystack.

    A token of the answer counts for a head if the model itself predicts it and the head's largest weight is on that
    token in the needle. For the control, the largest weight must be on another token in the needle. The model reads the
    true answer before each token (teacher forcing).

    Raises:
        SkippedTypeError: if there are no haystacks, or the model predicts no token, or none of the answer.
    """
    if not haystacks:
        raise SkippedTypeError("no text with a needle suits the model")
    scores: dict[HeadName, Float64Array] = {}
    controls: dict[HeadName, Float64Array] = {}
    predicted_share = np.zeros(len(haystacks))
    for text_index, haystack in enumerate(haystacks):
        top_keys: dict[HeadName, IntArray] = {}
        first_query = int(haystack.answer[0]) - 1

        def receive(
            site: CallSite,
            heads: tuple[int, ...],
            call: AttentionCall,
            queries: slice = slice(first_query, int(haystack.answer[-1])),
            top_keys: dict[HeadName, IntArray] = top_keys,
        ) -> None:
            keys = call.weights(heads, queries)[0].argmax(-1).cpu().numpy()
            top_keys.update({HeadName(site.layer, head): keys[index] for index, head in enumerate(heads)})

        output = model.run([haystack.ids], receive, predicts_after=first_query)
        logits = predictions_in(output, torch.tensor(haystack.ids[None]))
        if logits is None:
            raise SkippedTypeError("the model predicts no next token")
        if logits.shape[1] not in (len(haystack.ids), len(haystack.ids) - first_query):
            raise SkippedTypeError("the model predicts after its last token alone")
        predicted_ids = logits[0, haystack.answer - 1 - len(haystack.ids)].float().argmax(-1).cpu().numpy()
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
                table.setdefault(head, np.zeros(len(haystacks)))[text_index] = is_counted.mean()
        advance([haystack.ids])
    return dict(sorted(scores.items())), controls, predicted_share


def readable_haystacks(model: ProbedModel, seed: int) -> list[Haystack]:
    """Returns the haystacks of several lengths and depths that the model can read; empty if it can read none.

    They are words if the model knows a language, else random tokens.
    """
    haystacks = []
    for length in LENGTHS:
        for depth in np.linspace(0, 1, DEPTHS).tolist():
            haystack = (
                _haystack_of_words(model, length, depth)
                if model.read
                else _haystack_of_random_tokens(model, length, depth, seed)
            )
            if haystack is not None and (model.limit is None or len(haystack.ids) <= model.limit):
                haystacks.append(haystack)
    return haystacks


def _haystack_of_random_tokens(model: ProbedModel, length: int, depth: float, seed: int) -> Haystack | None:
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
    return Haystack(ids, (start, start + RANDOM_NEEDLE), answer, length, depth)


def _haystack_of_words(model: ProbedModel, length: int, depth: float) -> Haystack | None:
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
    return Haystack(tokens.ids, (int(in_needle[0]), int(in_needle[-1]) + 1), answer, length, depth)


def _token_indices(tokens: Tokens, start: int, characters: int) -> IntArray:
    """Returns the indices of the tokens of a part of the text, without special tokens."""
    starts, stops = tokens.offsets.T
    # a token that is only the space at the start of the part belongs to the text before it
    return np.flatnonzero((stops > start + 1) & (starts < start + characters) & ~tokens.special)
