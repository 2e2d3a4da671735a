"""Finds retrieval heads: heads that attend to the token of a needle that the model writes next (Wu et al. 2024)."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from attnviz.base.arrays import Float64Array, IntArray
from attnviz.battery.probed_model import ProbedModel
from attnviz.capture.calls.attention_call import AttentionCall
from attnviz.capture.flow.sites import CallSite
from attnviz.text.head_name import HeadName
from attnviz.text.samples import read_sample
from attnviz.text.tokens import Tokens

LENGTHS, DEPTHS = (64, 128, 256, 512), 5  # tokens of a haystack, and depths of the needle in it
QUESTION_TOKENS = 4  # first tokens of a random needle, which are repeated as the question
RANDOM_NEEDLE = 16  # tokens of a random needle
NEEDLE = " The secret of the old lighthouse is a green lantern under seven grey stones."
QUESTION = " What is the secret? The secret of the old lighthouse is"
ANSWER = " a green lantern under seven grey stones."


@dataclass(frozen=True, eq=False)
class _Haystack:
    """A text with a needle in it, followed by a question and its answer.

    Attributes:
        ids: the ids of all tokens.
        needle: the first key of the needle, and the key after its last; in a text of words, of the answer in it.
        answer: the positions of the answer's tokens.
        length: the number of tokens before the question; in a text of words, the most that there may be.
        depth: the place of the needle, from 0 for the start to 1 for the end.
    """

    ids: IntArray
    needle: tuple[int, int]
    answer: IntArray
    length: int
    depth: float


@dataclass(frozen=True, eq=False)
class RetrievalScores:
    """The retrieval scores of the heads.

    Attributes:
        scores: by head, the share of the answer's tokens that it retrieves from the needle, one per haystack.
        controls: by head, the share of the answer's tokens for which it attends to another token of the needle.
        predicted_share: the share of the answer's tokens that the model itself predicts, one per haystack.
        haystacks: the haystacks.
    """

    scores: dict[HeadName, Float64Array]
    controls: dict[HeadName, Float64Array]
    predicted_share: Float64Array
    haystacks: list[_Haystack]

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
