"""Makes the tests of types that need no language, on random tokens: previous, duplicate and induction."""

import numpy as np

from attnviz.base.arrays import BoolArray, Float64Array, IntArray
from attnviz.base.errors import AttnvizError
from attnviz.battery.probed_model import Probe, ProbedModel
from attnviz.text.head_name import HeadName

SEQUENCES, SEGMENT = 32, 50  # texts, and tokens of the segment that occurs twice in each
MIN_SEGMENT = 4
Pairs = tuple[list[Probe], list[Probe]]  # probes and their controls


def random_probes(model: ProbedModel, seed: int) -> dict[str, Pairs]:
    """Returns the probes of ``previous``, ``duplicate`` and ``induction``, each with its control."""
    segment = segment_length(model)
    random, probes = np.random.default_rng(seed), dict[str, Pairs]()
    for name in ("previous", "duplicate", "induction"):
        probes[name] = [], []
    for _ in range(SEQUENCES):
        segment_ids = random.choice(model.ordinary_ids, segment, replace=False)
        repeated_ids = model.framed(np.concatenate([segment_ids, segment_ids]))
        shuffled_ids = model.framed(np.concatenate([segment_ids, random.permutation(segment_ids)]))
        cells = {
            "previous": (_cells_before(model, segment, steps=1), repeated_ids, _cells_before(model, segment, steps=2)),
            "duplicate": (
                _cells_at_earlier_copy(model, segment, steps=0),
                shuffled_ids,
                _cells_at_earlier_copy(model, segment, steps=0),
            ),
            "induction": (
                _cells_at_earlier_copy(model, segment, steps=1),
                shuffled_ids,
                _cells_at_earlier_copy(model, segment, steps=1),
            ),
        }
        for name, (counted_cells, control_ids, control_cells) in cells.items():
            probes[name][0].append(Probe(repeated_ids, counted_cells))
            probes[name][1].append(Probe(control_ids, control_cells))
    return probes


def segment_length(model: ProbedModel) -> int:
    """Returns the number of random tokens in a segment: `SEGMENT`, or fewer if the model allows no more."""
    segment = min(SEGMENT, len(model.ordinary_ids))
    max_tokens = None if model.limit is None else model.limit - len(model.prefix_ids) - len(model.suffix_ids)
    if max_tokens is not None:
        segment = min(segment, max_tokens // 2)
    if segment < MIN_SEGMENT:
        raise AttnvizError(
            f"the battery needs a vocabulary of {MIN_SEGMENT} tokens and a text of {2 * MIN_SEGMENT}; {model.name} has "
            f"{len(model.ordinary_ids)} and reads {'any number' if max_tokens is None else max_tokens}; choose another"
        )
    return segment


def _no_cells(model: ProbedModel, segment: int) -> BoolArray:
    """Returns False for each cell of a text of two segments and special tokens, ``(tokens, tokens)``."""
    count = len(model.prefix_ids) + 2 * segment + len(model.suffix_ids)
    return np.zeros((count, count), dtype=bool)


def _cells_before(model: ProbedModel, segment: int, steps: int) -> BoolArray:
    """Returns the cells from each random token to the key ``steps`` before it, ``(tokens, tokens)``."""
    cells, start = _no_cells(model, segment), len(model.prefix_ids)
    for query in range(start + 2, start + 2 * segment):
        cells[query, query - steps] = True
    return cells


def _cells_at_earlier_copy(model: ProbedModel, segment: int, steps: int) -> BoolArray:
    """Returns the cells from each token of the second segment to the key ``steps`` after its copy in the first."""
    cells, start = _no_cells(model, segment), len(model.prefix_ids)
    for query in range(start + segment, start + 2 * segment):
        cells[query, query - segment + steps] = True
    return cells


def detection_cells(name: str, ids: IntArray) -> BoolArray:
    """Returns the cells that ``detect_head`` of TransformerLens counts, ``(tokens, tokens)``.

    Args:
        ids: the ids of the tokens, ``(tokens,)``.
    """
    count = len(ids)
    if name == "previous":
        return np.eye(count, k=-1, dtype=bool)
    earlier_copies = np.asarray(np.tril(ids[:, None] == ids, -1))
    if name == "duplicate":
        return earlier_copies
    cells_after_copies = np.zeros_like(earlier_copies)
    cells_after_copies[:, 1:] = earlier_copies[:, :-1]
    return cells_after_copies


def detect_head_scores(model: ProbedModel, name: str, texts: list[IntArray]) -> dict[HeadName, Float64Array]:
    """Returns the scores of ``detect_head`` of TransformerLens: the share of all weight on the cells that it counts.

    Returns:
        By head, one score per text.
    """
    probes = [Probe(ids, detection_cells(name, ids)) for ids in texts]
    mean_scores, _ = model.scores(probes)
    # scores are means over queries with a counted cell; detect_head divides by all queries
    shares = np.array([probe.cells.any(axis=-1).mean() for probe in probes])
    return {head: scores * shares for head, scores in mean_scores.items()}
