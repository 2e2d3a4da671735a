"""Types of heads that need no language: previous, duplicate and induction, on random tokens."""

import numpy as np

from attnviz.base.arrays import BoolArray, Float64Array, IntArray
from attnviz.base.errors import AttnvizError
from attnviz.battery.probed_model import HeadName, Probe, ProbedModel

SEQUENCES, SEGMENT = 32, 50  # texts, and tokens of what is said twice in each
MIN_SEGMENT = 4
Pairs = tuple[list[Probe], list[Probe]]  # texts and their controls


def random_probes(model: ProbedModel, seed: int) -> dict[str, Pairs]:
    """The texts of each type with their controls.

    Raises:
        AttnvizError: if the model has too few tokens or reads too few.
    """
    segment = segment_of(model)
    random, named = np.random.default_rng(seed), dict[str, Pairs]()
    for name in ("previous", "duplicate", "induction"):
        named[name] = [], []
    for _ in range(SEQUENCES):
        words = random.choice(model.words, segment, replace=False)
        repeated = model.framed(np.concatenate([words, words]))
        shuffled = model.framed(np.concatenate([words, random.permutation(words)]))
        cells = {
            "previous": (_before(model, segment, 1), repeated, _before(model, segment, 2)),
            "duplicate": (_earlier(model, segment, 0), shuffled, _earlier(model, segment, 0)),
            "induction": (_earlier(model, segment, 1), shuffled, _earlier(model, segment, 1)),
        }
        for name, (wanted, other, control) in cells.items():
            named[name][0].append(Probe(repeated, wanted))
            named[name][1].append(Probe(other, control))
    return named


def segment_of(model: ProbedModel) -> int:
    """How many random tokens are said twice."""
    room = (10**9 if model.limit is None else model.limit) - len(model.before) - len(model.after)
    segment = min(SEGMENT, room // 2, len(model.words))
    if segment < MIN_SEGMENT:
        raise AttnvizError(
            f"{model.name} has {len(model.words)} tokens and reads {room} of them; the battery says {MIN_SEGMENT} or "
            "more twice"
        )
    return segment


def _empty(model: ProbedModel, segment: int) -> BoolArray:
    count = len(model.before) + 2 * segment + len(model.after)
    return np.zeros((count, count), dtype=bool)


def _before(model: ProbedModel, segment: int, steps: int) -> BoolArray:
    """The keys so many tokens before each query, from the third of the random tokens on."""
    cells, start = _empty(model, segment), len(model.before)
    for query in range(start + 2, start + 2 * segment):
        cells[query, query - steps] = True
    return cells


def _earlier(model: ProbedModel, segment: int, steps: int) -> BoolArray:
    """For each query of the second half the key in its place of the first, or so many tokens after that."""
    cells, start = _empty(model, segment), len(model.before)
    for query in range(start + segment, start + 2 * segment):
        cells[query, query - segment + steps] = True
    return cells


def detection_cells(name: str, ids: IntArray) -> BoolArray:
    """The cells that ``detect_head`` of TransformerLens counts, ``(tokens, tokens)``.

    Args:
        name: ``previous``, ``duplicate`` or ``induction``.
        ids: the tokens.
    """
    count = len(ids)
    if name == "previous":
        return np.eye(count, k=-1, dtype=bool)
    copies = (ids[:, None] == ids) & ~np.eye(count, dtype=bool)
    copies = np.asarray(np.tril(copies))
    if name == "duplicate":
        return copies
    after = np.zeros_like(copies)
    after[:, 1:] = copies[:, :-1]
    return np.asarray(np.tril(after))


def detected(model: ProbedModel, name: str, texts: list[IntArray]) -> dict[HeadName, Float64Array]:
    """What ``detect_head`` of TransformerLens says of each head in each text: the share of all weight on its cells."""
    probes = [Probe(ids, detection_cells(name, ids)) for ids in texts]
    found, _ = model.scores(probes)
    shares = np.array([probe.cells.any(axis=-1).mean() for probe in probes])  # of queries that have any
    return {head: scores * shares for head, scores in found.items()}
