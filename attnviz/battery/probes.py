"""Makes the texts that test for types of heads, with the cells that count: random tokens, and templates of a language.

Random tokens test for previous, duplicate and induction heads; templates for successor, delimiter, first-token,
name-mover and S-inhibition heads.

A head of a random model also prefers some distances, positions and words, and prefers them in every text. So a type has
several controls, which are other cells of its kind: other distances, other words, other orders. How they differ from
each other says how far chance alone takes a score.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from attnviz.base.arrays import BoolArray, IntArray
from attnviz.base.errors import AttnvizError
from attnviz.battery.probed_model import Probe, ProbedModel
from attnviz.text.samples import read_sample
from attnviz.text.tokens import Tokens

SEQUENCES, SEGMENT = 32, 50  # texts, and tokens of the segment that occurs twice in each
MIN_SEGMENT = 4
MAX_STEPS = 16  # the longest distance that is a control of the token before

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
SHUFFLES = 8  # of each order
OTHER_STEPS = (*range(-6, -1), *range(2, 7))  # in an order; neighbours on the other side may be alike
STORY_SAMPLE = "long"  # a story whose paragraphs have marks that later tokens can see
DELIMITERS = ".,;:!?"
FREQUENT_TOKENS = 16  # controls of the delimiters
NEXT_POSITIONS = 8  # controls of the first token in each text


@dataclass(frozen=True)
class TypeTest:
    """The probes that test for a type of heads."""

    texts: list[Probe] = field(default_factory=list)  # their mean score is that of the type
    controls: list[list[Probe]] = field(default_factory=list)  # the mean score of each list is one control


def random_tests(model: ProbedModel, seed: int) -> dict[str, TypeTest]:
    """Returns the tests of ``previous``, ``duplicate`` and ``induction``, which need no language."""
    segment, start = segment_length(model), len(model.prefix_ids)
    middle, end = start + segment, start + 2 * segment
    max_steps = min(MAX_STEPS, segment)

    def cells_before(first_query: int, steps: int) -> BoolArray:
        cells = np.zeros((end + len(model.suffix_ids),) * 2, dtype=bool)
        queries = np.arange(first_query, end)
        cells[queries, queries - steps] = True
        return cells

    # All distances are measured on the same queries, since an early query has few keys to share its weight among.
    one_before = cells_before(start + max_steps, 1)
    other_distances = [cells_before(start + max_steps, steps) for steps in (0, *range(2, max_steps + 1))]
    copy, after_copy = cells_before(middle, segment), cells_before(middle, segment - 1)
    tests = {name: TypeTest() for name in ("previous", "duplicate", "induction")}
    tests["previous"].controls.extend([] for _ in other_distances)
    random = np.random.default_rng(seed)
    for _ in range(SEQUENCES):
        segment_ids = random.choice(model.ordinary_ids, segment, replace=False)
        repeated_ids = model.framed(np.concatenate([segment_ids, segment_ids]))
        shuffled_ids = model.framed(np.concatenate([segment_ids, random.permutation(segment_ids)]))
        tests["previous"].texts.append(Probe(repeated_ids, one_before))
        for control, cells in zip(tests["previous"].controls, other_distances, strict=True):
            control.append(Probe(repeated_ids, cells))
        for name, cells in (("duplicate", copy), ("induction", after_copy)):
            tests[name].texts.append(Probe(repeated_ids, cells))
            tests[name].controls.append([Probe(shuffled_ids, cells)])
    return tests


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


def detection_probe(name: str, ids: IntArray) -> Probe:
    """Returns a probe whose score is that of ``detect_head`` of TransformerLens: the share of all weight on some cells.

    Args:
        name: ``previous``, ``duplicate`` or ``induction``.
        ids: the ids of the tokens, ``(tokens,)``.
    """
    cells: BoolArray = np.eye(len(ids), k=-1, dtype=bool)
    if name != "previous":
        earlier_copies = np.asarray(np.tril(ids[:, None] == ids, -1))
        cells = earlier_copies
        if name == "induction":
            cells = np.zeros_like(earlier_copies)
            cells[:, 1:] = earlier_copies[:, :-1]
    # A score is a mean over queries with a counted cell, but detect_head divides by all queries.
    return Probe(ids, cells * cells.any(axis=-1).mean())


def language_tests(model: ProbedModel, seed: int) -> dict[str, TypeTest]:
    """Returns the tests of each type that needs a language.

    A type is left out if the model cannot tell its words apart, or if it needs a causal model and this one is not.
    """
    _, *paragraphs = read_sample(STORY_SAMPLE).split("\n\n")  # the first is the title
    texts = [_tokens_in_limit(model, text) for text in paragraphs]
    tests = {
        "successor": _successor_test(model, np.random.default_rng(seed)),
        "delimiter": _delimiter_test(texts, model.looks_ahead),
        "first token": _first_token_test(texts),
    }
    if not model.looks_ahead:
        tests |= _story_tests(model)
    return {name: test for name, test in tests.items() if test.texts}


def _delimiter_test(texts: Sequence[Tokens], looks_ahead: bool) -> TypeTest:
    """Returns a test of the weight on delimiters; a control is the weight on as many copies of a frequent token."""
    delimiters_of_texts = []
    for tokens in texts:
        pieces = [tokens.text[start:stop].strip() for start, stop in tokens.offsets.tolist()]
        delimiters_of_texts.append(np.array([bool(piece) and set(piece) <= set(DELIMITERS) for piece in pieces]))
    counts = Counter(
        number
        for tokens, delimiters in zip(texts, delimiters_of_texts, strict=True)
        for number in tokens.ids[~delimiters & ~tokens.special].tolist()
    )
    test = TypeTest(controls=[[] for _ in counts.most_common(FREQUENT_TOKENS)])
    for tokens, delimiters in zip(texts, delimiters_of_texts, strict=True):
        visible: BoolArray = np.ones((len(tokens),) * 2, dtype=bool)
        visible = (visible if looks_ahead else np.tril(visible, -1)) & _counted_queries(tokens, 1)
        delimiter_cells = delimiters & visible
        if delimiter_cells.any():
            test.texts.append(Probe(tokens.ids, delimiter_cells))
        for control, (number, _) in zip(test.controls, counts.most_common(FREQUENT_TOKENS), strict=True):
            cells = (tokens.ids == number) & ~delimiters & visible
            copies = delimiter_cells.sum(axis=-1) / np.maximum(cells.sum(axis=-1), 1)  # that each cell stands for
            if (cells * copies[:, None]).any():
                control.append(Probe(tokens.ids, cells * copies[:, None]))
    return TypeTest(test.texts, [control for control in test.controls if control])


def _first_token_test(texts: Sequence[Tokens]) -> TypeTest:
    """Returns a test of the weight on the first token; a control is the weight on one token soon after it."""
    test = TypeTest()
    for tokens in texts:
        counted_queries = _counted_queries(tokens, NEXT_POSITIONS + 1)
        if not counted_queries.any():  # the model reads too few tokens
            continue
        keys = np.arange(len(tokens))
        test.texts.append(Probe(tokens.ids, (keys == 0) & counted_queries))
        for position in range(1, NEXT_POSITIONS + 1):
            test.controls.append([Probe(tokens.ids, (keys == position) & counted_queries)])
    return test


def _counted_queries(tokens: Tokens, first: int) -> BoolArray:
    """Returns True for each token that counts as a query, ``(tokens, 1)``: from ``first`` on, except special ones."""
    is_counted: BoolArray = ~tokens.special[:, None] & (np.arange(len(tokens)) >= first)[:, None]
    return is_counted


def _tokens_in_limit(model: ProbedModel, text: str) -> Tokens:
    """Returns the tokens of a text, cut to the model's longest input."""
    assert model.read is not None
    tokens = model.read(text)
    return tokens if model.limit is None or len(tokens) <= model.limit else tokens.shortened(model.limit)


def _successor_test(model: ProbedModel, random: np.random.Generator) -> TypeTest:
    """Returns a test of the weight from an item of a shuffled list to the one before it in the order.

    Only items that stand earlier in the list count. A control is the weight on the item that is some other number of
    steps before or after it in the order.
    """
    test = TypeTest(controls=[[] for _ in OTHER_STEPS])
    for order in ORDERS:
        items = order.split()
        for _ in range(SHUFFLES):
            order_at = random.permutation(len(items))
            place_of = np.argsort(order_at)
            listed = [items[index] for index in order_at]
            tokens = _tokens_in_limit(model, ", ".join(listed))
            spans = _word_spans(tokens, listed)
            if not _are_distinct(tokens, spans):
                continue
            for steps, probes in ((1, test.texts), *zip(OTHER_STEPS, test.controls, strict=True)):
                cells = np.zeros((len(tokens),) * 2, dtype=bool)
                for number in range(max(0, steps), min(len(items), len(items) + steps)):
                    query, key = place_of[number], place_of[number - steps]
                    if key < query:
                        cells[spans[query].max(), spans[key]] = True
                if cells.any():
                    probes.append(Probe(tokens.ids, cells))
    return test if all(test.controls) else TypeTest()


def _story_tests(model: ProbedModel) -> dict[str, TypeTest]:
    """Returns the tests of ``name mover`` and ``S-inhibition``, on the story of Wang et al.

    In the stories of a control, every name stands once in every place, so that no name or place is preferred.
    """
    tests = {"name mover": TypeTest(), "S-inhibition": TypeTest()}
    for distance, (place, thing) in product(range(1, len(NAMES)), PLACES):
        texts, controls = [list[Probe](), list[Probe]()], [list[Probe](), list[Probe]()]
        for index, is_swapped in product(range(len(NAMES)), (False, True)):
            third_distance = distance % (len(NAMES) - 1) + 1
            first, second, third = (NAMES[(index + steps) % len(NAMES)] for steps in (0, distance, third_distance))
            subject = first if is_swapped else second
            stories = []
            for name in (subject, third):
                words = {"first": first, "second": second, "third": name, "place": place, "thing": thing}
                tokens = _tokens_in_limit(model, STORY.format(**words))
                stories.append((tokens, _word_spans(tokens, [first, second, name])))
            (tokens, spans), (control_tokens, control_spans) = stories
            if not (_are_distinct(tokens, spans[:2]) and _are_distinct(control_tokens, control_spans)):
                continue
            object_span, subject_span = spans[1::-1] if is_swapped else spans[:2]
            texts[0].append(_last_token_probe(tokens, object_span))
            # Both mentions together: a head that looks for the name by itself shares its weight among them.
            controls[0].append(_last_token_probe(tokens, np.concatenate([subject_span, spans[2]])))
            texts[1].append(_last_token_probe(tokens, spans[2]))
            controls[1].append(_last_token_probe(control_tokens, control_spans[2]))
        if len(texts[0]) == 2 * len(NAMES):
            for test, test_texts, control in zip(tests.values(), texts, controls, strict=True):
                test.texts.extend(test_texts)
                test.controls.append(control)
    return tests


def _word_spans(tokens: Tokens, words: Sequence[str]) -> list[IntArray]:
    """Returns the indices of each word's tokens; the words are in their order in the text."""
    spans, position = list[IntArray](), 0
    for word in words:
        start = tokens.text.index(word, position)
        position = start + len(word)
        starts, stops = tokens.offsets.T
        spans.append(np.flatnonzero((stops > start) & (starts < position)))
    return spans


def _are_distinct(tokens: Tokens, spans: Sequence[IntArray]) -> bool:
    """True if every word has tokens, and no two words have the same tokens."""
    words = [tuple(tokens.ids[span].tolist()) for span in spans]
    return all(words) and len(set(words)) == len(words)


def _last_token_probe(tokens: Tokens, keys: IntArray) -> Probe:
    """Returns a probe of the cells from the last token that is not special to the keys at these indices."""
    cells: BoolArray = np.zeros((len(tokens),) * 2, dtype=bool)
    cells[np.flatnonzero(~tokens.special)[-1], keys] = True
    return Probe(tokens.ids, cells)
