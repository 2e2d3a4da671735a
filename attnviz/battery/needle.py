"""Retrieval heads: which heads look at the token of a needle that the model is about to write (Wu et al. 2024)."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from attnviz.base.arrays import Float64Array, IntArray
from attnviz.battery.probed_model import HeadName, ProbedModel
from attnviz.capture.calls.attention_call import AttentionCall
from attnviz.capture.flow.sites import CallSite
from attnviz.text.samples import read_sample
from attnviz.text.tokens import Tokens

LENGTHS, DEPTHS = (64, 128, 256, 512), 5  # tokens, and places of the needle in each
FIRST_TOLD = 4  # tokens of a random needle that the question gives
RANDOM_NEEDLE = 16
NEEDLE = " The secret of the old lighthouse is a green lantern under seven grey stones."
QUESTION = " What is the secret? The secret of the old lighthouse is"
ANSWER = " a green lantern under seven grey stones."


@dataclass(frozen=True, eq=False)
class Haystack:
    """Tokens with a needle, and the question and its answer after them.

    Attributes:
        ids: all of them.
        needle: the keys of the needle, ``(first, after the last)``.
        answer: the places of the answer's tokens.
        length: tokens before the question.
        depth: where the needle is, 0 for the start, 1 for the end.
    """

    ids: IntArray
    needle: tuple[int, int]
    answer: IntArray
    length: int
    depth: float


@dataclass(frozen=True, eq=False)
class Retrieved:
    """What the battery finds with needles.

    Attributes:
        scores: of each head and haystack, the share of the needle's tokens that it retrieves.
        controls: the same of tokens of the needle that are not the one that is written.
        written: the share of the answer that the model writes, for each haystack.
        haystacks: what they were.
    """

    scores: dict[HeadName, Float64Array]
    controls: dict[HeadName, Float64Array]
    written: Float64Array
    haystacks: list[Haystack]


def retrieved(model: ProbedModel, seed: int) -> Retrieved | None:
    """How much of a needle each head retrieves; ``None`` where the model predicts no next token.

    A token of the answer counts for a head where the model itself would write it, and the key that the head looks at
    most is that same token in the needle. The tokens of the answer before it are given.
    """
    hay = haystacks(model, seed)
    scores: dict[HeadName, Float64Array] = {}
    controls: dict[HeadName, Float64Array] = {}
    written = np.zeros(len(hay))
    for number, each in enumerate(hay):
        most: dict[HeadName, IntArray] = {}

        def receive(
            site: CallSite,
            heads: tuple[int, ...],
            call: AttentionCall,
            each: Haystack = each,
            most: dict[HeadName, IntArray] = most,
        ) -> None:
            weights = call.weights(heads, slice(int(each.answer[0]) - 1, int(each.answer[-1])))
            keys = weights[0].argmax(-1).cpu().numpy()
            most.update({(site.layer, head): keys[place] for place, head in enumerate(heads)})

        given = model.run([each.ids], receive)
        logits = given if isinstance(given, Tensor) else getattr(given, "logits", None)
        if logits is None or logits.shape[1] != len(each.ids):
            return None
        best = logits[0, each.answer - 1].float().argmax(-1).cpu().numpy()
        target = each.ids[each.answer]
        writes = best == target
        written[number] = writes.mean()
        for head, keys in most.items():
            inside = (keys >= each.needle[0]) & (keys < each.needle[1])
            same = each.ids[keys] == target
            for found, counted in ((scores, inside & same & writes), (controls, inside & ~same)):
                found.setdefault(head, np.zeros(len(hay)))[number] = counted.mean()
    return Retrieved(dict(sorted(scores.items())), controls, written, hay)


def haystacks(model: ProbedModel, seed: int) -> list[Haystack]:
    """The texts, at several lengths and depths, of words or of random tokens, as far as the model reads them."""
    made = []
    for length in LENGTHS:
        for depth in np.linspace(0, 1, DEPTHS).tolist():
            one = _of_words(model, length, depth) if model.read else _of_random(model, length, depth, seed)
            if one is not None and (model.limit is None or len(one.ids) <= model.limit):
                made.append(one)
    return made


def _of_random(model: ProbedModel, length: int, depth: float, seed: int) -> Haystack | None:
    """Random tokens with a run of them said again, of which the first are given."""
    random = np.random.default_rng([seed, length, round(100 * depth)])
    words = random.permutation(model.words)
    needle, others = words[:RANDOM_NEEDLE], words[RANDOM_NEEDLE:]
    if not len(others):
        return None
    hay = random.choice(others, length - RANDOM_NEEDLE)
    place = round(depth * len(hay))
    ids = model.framed(np.concatenate([hay[:place], needle, hay[place:], needle]))
    start = len(model.before) + place
    answer = np.arange(len(model.before) + length + FIRST_TOLD, len(model.before) + length + RANDOM_NEEDLE)
    return Haystack(ids, (start, start + RANDOM_NEEDLE), answer, length, depth)


def _of_words(model: ProbedModel, length: int, depth: float) -> Haystack | None:
    """A sample text, cut, with a sentence in it and a question after it."""
    assert model.read is not None
    sentences = [part.strip() + "." for part in read_sample("long").replace("\n", " ").split(".") if part.strip()]
    room = length - len(model.read(NEEDLE))
    hay = list[str]()
    for sentence in sentences * 8:
        if len(model.read(" ".join([*hay, sentence]))) > room:
            break
        hay.append(sentence)
    place = round(depth * len(hay))
    text = " ".join(hay[:place]) + NEEDLE + " " + " ".join(hay[place:]) + QUESTION + ANSWER
    tokens = model.read(text)
    first = text.index(ANSWER)
    needle, answer = (_span(tokens, start, len(ANSWER)) for start in (first, text.rindex(ANSWER)))
    if not len(needle) or not np.array_equal(tokens.ids[needle], tokens.ids[answer]):
        return None
    return Haystack(tokens.ids, (int(needle[0]), int(needle[-1]) + 1), answer, length, depth)


def _span(tokens: Tokens, start: int, characters: int) -> IntArray:
    """The tokens of a part of the text."""
    starts, stops = tokens.offsets.T
    return np.flatnonzero((stops > start + 1) & (starts < start + characters) & ~tokens.special)
