"""Makes the texts that test for types of heads, with the cells that count: random tokens, and templates of a language.

Random tokens test for previous, duplicate and induction heads; templates for successor, delimiter, first-token,
name-mover and S-inhibition heads.
"""

from collections.abc import Sequence
from itertools import pairwise, permutations

import numpy as np

from attnviz.base.arrays import BoolArray, Float64Array, IntArray
from attnviz.base.errors import AttnvizError
from attnviz.battery.probed_model import Probe, ProbedModel
from attnviz.text.head_name import HeadName
from attnviz.text.samples import read_sample
from attnviz.text.tokens import Tokens

SEQUENCES, SEGMENT = 32, 50  # texts, and tokens of the segment that occurs twice in each
MIN_SEGMENT = 4
Pairs = tuple[list[Probe], list[Probe]]  # probes and their controls

NAMES = ("Mary", "John", "Tom", "Anna", "Peter", "Sarah")
PLACES = (("store", "drink"), ("park", "ball"), ("school", "book"))
STORY = "When {first} and {second} went to the {place}, {third} gave a {thing} to"
ORDERS = (
    "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "January February March April May June July August September October November December",
    "one two three four five six seven eight nine ten",
    "first second third fourth fifth sixth seventh eighth ninth tenth",
    "1 2 3 4 5 6 7 8 9 10",
)
SHUFFLES = 4  # of each order
STORY_STEP = 4  # one in this many orders of the names makes a story
FIRST_TOKEN_SAMPLES = ("life", "pronoun", "garden-path")  # samples of this package
STORY_SAMPLE = "long"  # whose paragraphs have marks that later tokens can see
DELIMITERS = ".,;:!?"


def random_probes(model: ProbedModel, seed: int) -> dict[str, Pairs]:
    """Returns the probes of ``previous``, ``duplicate`` and ``induction``, which need no language, with controls."""
    segment = segment_length(model)
    random, probes = np.random.default_rng(seed), dict[str, Pairs]()
    for name in ("previous", "duplicate", "induction"):
        probes[name] = [], []
    copy, after_copy = (_cells_at_earlier_copy(model, segment, steps) for steps in (0, 1))
    one_before, two_before = (_cells_before(model, segment, steps) for steps in (1, 2))
    for _ in range(SEQUENCES):
        segment_ids = random.choice(model.ordinary_ids, segment, replace=False)
        repeated_ids = model.framed(np.concatenate([segment_ids, segment_ids]))
        shuffled_ids = model.framed(np.concatenate([segment_ids, random.permutation(segment_ids)]))
        for name, counted_cells, control_ids, control_cells in (
            ("previous", one_before, repeated_ids, two_before),
            ("duplicate", copy, shuffled_ids, copy),
            ("induction", after_copy, shuffled_ids, after_copy),
        ):
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


def template_probes(model: ProbedModel, seed: int) -> dict[str, Pairs]:
    """Returns the probes of each type with their controls.

    A type is left out if the model cannot tell its words apart, or if it needs a causal model and this one is not.
    """
    probes = {"successor": _successor_probes(model, np.random.default_rng(seed))}
    if not _looks_ahead(model):
        probes |= _story_probes(model)
    return {name: pairs for name, pairs in probes.items() if pairs[0]}


def delimiter_probes(model: ProbedModel) -> dict[str, list[Probe]]:
    """Returns the probes of ``delimiter``, which are paragraphs of a story, and of ``first token``, which are samples.

    Paragraphs without a delimiter are left out.
    """
    _, *paragraphs = read_sample(STORY_SAMPLE).split("\n\n")  # the first is the title
    looks_ahead = _looks_ahead(model)
    probes = [_delimiter_probe(_tokens_in_limit(model, text), looks_ahead) for text in paragraphs]
    sample_probes = [_first_token_probe(_tokens_in_limit(model, read_sample(name))) for name in FIRST_TOKEN_SAMPLES]
    return {"delimiter": [probe for probe in probes if probe.cells.any()], "first token": sample_probes}


def _delimiter_probe(tokens: Tokens, looks_ahead: bool) -> Probe:
    """Returns a probe of the cells from each token to the visible delimiters: all, or those before it."""
    count = len(tokens)
    pieces = [tokens.text[start:stop].strip() for start, stop in tokens.offsets.tolist()]
    is_delimiter = np.array([bool(piece) and all(character in DELIMITERS for character in piece) for piece in pieces])
    all_cells: BoolArray = np.ones((count, count), dtype=bool)
    visible = all_cells if looks_ahead else np.tril(all_cells, -1)
    return Probe(tokens.ids, is_delimiter & visible & _counted_queries(tokens))


def _first_token_probe(tokens: Tokens) -> Probe:
    """Returns a probe of the cells from each counted query to the first token."""
    return Probe(tokens.ids, (np.arange(len(tokens)) == 0) & _counted_queries(tokens))


def _counted_queries(tokens: Tokens) -> BoolArray:
    """Returns True for each token that counts as a query, ``(tokens, 1)``: all except special tokens and the first."""
    is_counted: BoolArray = ~tokens.special[:, None] & (np.arange(len(tokens)) > 0)[:, None]
    return is_counted


def _tokens_in_limit(model: ProbedModel, text: str) -> Tokens:
    """Returns the tokens of a text, cut to the model's longest input."""
    assert model.read is not None
    tokens = model.read(text)
    return tokens if model.limit is None or len(tokens) <= model.limit else tokens.shortened(model.limit)


def _looks_ahead(model: ProbedModel) -> bool:
    """True if a query of any head sees a later key."""
    ids = model.framed(model.ordinary_ids[:4])  # any tokens do; 4 are enough for later keys
    probe = Probe(ids, np.triu(np.ones((len(ids), len(ids)), dtype=bool), 1))
    _, uniform_scores = model.scores([probe])  # uniform attention has weight on later keys only if some are visible
    return any(bool(score[0] > 0) for score in uniform_scores.values())


def _successor_probes(model: ProbedModel, random: np.random.Generator) -> Pairs:
    """Returns probes of shuffled items of a known order, and of the same places in other shuffles as controls."""
    probes, controls = list[Probe](), list[Probe]()
    for order in ORDERS:
        items = order.split()
        for _ in range(SHUFFLES):
            order_at, other_order_at = random.permutation(len(items)), random.permutation(len(items))
            place_of = np.argsort(order_at)
            pairs = [(query, key) for key, query in pairwise(place_of.tolist()) if key < query]
            lists = [
                _list_probe(model, [items[index] for index in shuffle], pairs) for shuffle in (order_at, other_order_at)
            ]
            if pairs and lists[0] is not None and lists[1] is not None:
                probes.append(lists[0])
                controls.append(lists[1])
    return probes, controls


def _list_probe(model: ProbedModel, items: Sequence[str], pairs: Sequence[tuple[int, int]]) -> Probe | None:
    """Returns a probe of the cells from an item's last token to another item."""
    tokens = _tokens_in_limit(model, ", ".join(items))
    spans = _word_spans(tokens, items)
    if not _are_distinct(tokens, spans):
        return None
    cells = np.zeros((len(tokens),) * 2, dtype=bool)
    for query, key in pairs:
        cells[spans[query].max(), spans[key]] = True
    return Probe(tokens.ids, cells)


def _story_probes(model: ProbedModel) -> dict[str, Pairs]:
    """Returns the probes of ``name mover`` and ``S-inhibition`` with their controls, on the story of Wang et al."""
    mover_probes: Pairs = ([], [])
    inhibitor_probes: Pairs = ([], [])
    for number, (first_name, second_name, third_name) in enumerate(permutations(NAMES, 3)):
        if number % STORY_STEP:
            continue
        place, thing = PLACES[number % len(PLACES)]
        words = {"first": first_name, "second": second_name, "place": place, "thing": thing}
        story = _story(model, [first_name, second_name, second_name], STORY.format(**words, third=second_name))
        control_story = _story(model, [first_name, second_name, third_name], STORY.format(**words, third=third_name))
        if story is None or control_story is None:
            continue
        tokens, (indirect_object, subject, second_subject) = story
        mover_probes[0].append(_last_token_probe(tokens, indirect_object))
        mover_probes[1].append(_last_token_probe(tokens, subject))
        inhibitor_probes[0].append(_last_token_probe(tokens, second_subject))
        inhibitor_probes[1].append(_last_token_probe(control_story[0], control_story[1][2]))
    return {"name mover": mover_probes, "S-inhibition": inhibitor_probes}


def _story(model: ProbedModel, names: Sequence[str], text: str) -> tuple[Tokens, list[np.ndarray]] | None:
    """Returns the tokens of a story and of its names."""
    tokens = _tokens_in_limit(model, text)
    spans = _word_spans(tokens, names)
    return (tokens, spans) if _are_distinct(tokens, spans[:2]) else None


def _word_spans(tokens: Tokens, words: Sequence[str]) -> list[np.ndarray]:
    """Returns the indices of each word's tokens; the words are in their order in the text."""
    spans, position = list[np.ndarray](), 0
    for word in words:
        start = tokens.text.index(word, position)
        position = start + len(word)
        starts, stops = tokens.offsets.T
        spans.append(np.flatnonzero((stops > start) & (starts < position)))
    return spans


def _are_distinct(tokens: Tokens, spans: Sequence[np.ndarray]) -> bool:
    """True if every word has tokens, and no two words have the same tokens."""
    words = [tuple(tokens.ids[span].tolist()) for span in spans]
    return all(words) and len(set(words)) == len(words)


def _last_token_probe(tokens: Tokens, keys: np.ndarray) -> Probe:
    """Returns a probe of the cells from the last token that is not special to the keys at these indices."""
    cells: BoolArray = np.zeros((len(tokens),) * 2, dtype=bool)
    cells[np.flatnonzero(~tokens.special)[-1], keys] = True
    return Probe(tokens.ids, cells)
