"""Decides what a reader sees at first: which keys overviews leave out, and the sentence on what stands out.

Many heads rest on a sink wherever they find nothing to do (Gu et al. 2025), and a picture of 72 heads is then
one bright column 72 times. Overviews leave such keys out, say so, and show what else the heads look at. No number
changes by it.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

import numpy as np

from attnviz.base.arrays import BoolArray, Float64Array
from attnviz.base.errors import with_capital
from attnviz.maps.layer_maps import LayerMaps, cell_maps, known_cells
from attnviz.maps.recording import ChosenHead
from attnviz.media.image import Image
from attnviz.media.sound import Sound
from attnviz.text.named_groups import in_text
from attnviz.text.places import place_name
from attnviz.text.tokens import Tokens

if TYPE_CHECKING:
    from attnviz.metrics.head_frame import HeadFrame

# Of its weight that the median head puts on keys that are left out, at least. It is less than half, so that all
# sentences of an encoder look alike: MiniLM puts 44 % to 60 % on [CLS] and [SEP].
MIN_LEFT_OUT_SHARE = 0.4
MIN_LEFT_OUT_LIFT = 1.25  # times what uniform attention puts there, which is much in a short text
MIN_OTHER_KEYS = 2  # that a query sees beside them, else it has no choice
MAX_MEASURED_QUERIES = 512  # of a head; of more queries, bands that are evenly spread
BANDS = 8
MAX_LABELS = 3  # of keys that a sentence names
MAX_SEARCHED_CELLS = 20_000_000  # over all heads, among which a strong weight is looked for
MIN_DISTANCE = 2  # of a query from the key it looks at: nearer ones are said by the patterns
MIN_STRONG_WEIGHT = 0.25
MAX_CLEAREST = 3
MAX_SAID_TURNS = 2  # earlier ones, at which the last one looks most
MIN_SAID_SHARE = 0.05  # of the mean row on keys that are set apart: less is not said
MIN_LOOK, MIN_LOOK_LIFT = 10, 2  # percent of a row on one key, and times an even share: less is no look at this key
MAX_SAID_KEYS, MAX_SAID_HEADS = 2, 2  # at which heads look, and heads that look at each
BY_DISTANCE = ("previous token", "next token", "own token")  # patterns that the distance explains alone


def quoted(label: str) -> str:
    """Returns a token in quotes, without the spaces before it."""
    return f"“{label.strip('␣ ') or label}”"


@dataclass(frozen=True)
class LeftOutKeys:
    """The keys that overviews leave out."""

    special: bool  # whether these are the special tokens
    first: bool  # whether the first token is one of them
    share: float = 0.0  # of its weight that the median head puts on them
    labels: tuple[str, ...] = ()  # of the keys, each once

    def among(self, tokens: Tokens, span: slice) -> BoolArray:
        """Returns True for the keys of a span that are left out, ``(keys,)``; for none if nothing else were left."""
        is_left_out = tokens.special[span] & self.special
        is_left_out[: int(self.first and span.start == 0)] = True
        return is_left_out & ~is_left_out.all()

    @property
    def names(self) -> str:
        """The keys in a sentence, such as ``[CLS] and [SEP]``."""
        if len(self.labels) > MAX_LABELS:
            return "special tokens" if self.special else "first tokens"
        labels = list(self.labels) if self.special else [f"the first token, {quoted(self.labels[0])},"]
        return " and ".join([", ".join(labels[:-1]), labels[-1]] if len(labels) > 1 else labels)

    @property
    def sentence(self) -> str:
        """Says what is left out, and how much of the weight."""
        are, them = ("is", "it") if len(self.labels) == 1 else ("are", "them")
        names = with_capital(self.names)
        return f"{names} {are} left out: the median head puts {self.share:.0%} of its weight on {them}."


def left_out_keys(heads: Sequence[ChosenHead]) -> LeftOutKeys | None:
    """Returns the keys on which the median head rests: special tokens, or the first one.

    It puts more than `MIN_LEFT_OUT_SHARE` of its weight there, and `MIN_LEFT_OUT_LIFT` times what uniform attention
    does.

    Returns:
        ``None`` if there are none, or if a head has no single cells or holds contributions, whose rows have no sum.
    """
    if not heads or any(known_cells(head.maps) is None or head.maps.quantity != "weight" for head in heads):
        return None
    groups = []
    for group in _heads_alike(heads):
        some_head = heads[group[0]]
        maps, queries = known_cells(some_head.maps), some_head.queries
        assert maps is not None  # as checked above
        bands = [queries]
        if queries.stop - queries.start > MAX_MEASURED_QUERIES:
            size = MAX_MEASURED_QUERIES // BANDS
            starts = np.linspace(queries.start, queries.stop - size, BANDS).astype(int).tolist()
            bands = [slice(start, start + size) for start in starts]
        counts = [maps.visible_key_counts(some_head.head, band) for band in bands]
        groups.append((maps, some_head.keys, tuple(heads[index].head for index in group), bands, counts))
    for rule in (LeftOutKeys(True, False), LeftOutKeys(False, True), LeftOutKeys(True, True)):
        # Shares of the weight, of the heads and of uniform attention: means over queries that see enough other keys.
        shares_of_groups: list[tuple[Float64Array, Float64Array]] = []
        labels: dict[str, None] = {}
        for maps, keys, numbers, bands, counts in groups:
            is_left_out = rule.among(maps.key_tokens, keys)
            omitted_keys = np.flatnonzero(is_left_out) + keys.start
            labels |= dict.fromkeys(maps.key_tokens.labels[key] for key in omitted_keys.tolist())
            runs = [run for run in np.split(omitted_keys, np.flatnonzero(np.diff(omitted_keys) > 1) + 1) if len(run)]
            total, even_total, measured_queries = np.zeros(len(numbers)), 0.0, 0
            for band, visible_keys in zip(bands, counts, strict=True):
                on_keys, seen_keys = np.zeros((len(numbers), len(visible_keys))), np.zeros(len(visible_keys))
                for run in runs:
                    window = maps.window(numbers, band, slice(int(run[0]), int(run[-1]) + 1))
                    on_keys += np.nan_to_num(window.weights).sum(axis=-1)
                    seen_keys += window.visible.sum(axis=-1)
                has_choice = visible_keys - seen_keys >= MIN_OTHER_KEYS
                total += np.sum(on_keys, axis=-1, where=has_choice)
                even_total += np.sum(seen_keys / np.maximum(visible_keys, 1), where=has_choice)
                measured_queries += int(has_choice.sum())
            if measured_queries:
                even_share = np.full(len(numbers), even_total / measured_queries)
                shares_of_groups.append((total / measured_queries, even_share))
        if not shares_of_groups:
            continue
        # numpy's median would import masked arrays, which takes longer than all of this
        ascending = np.sort(np.concatenate(shares_of_groups, axis=1), axis=1)
        middles = [(ascending.shape[1] - 1) // 2, ascending.shape[1] // 2]
        share, even_share = ascending[:, middles].mean(axis=1).tolist()
        if share > max(MIN_LEFT_OUT_SHARE, MIN_LEFT_OUT_LIFT * even_share):
            return LeftOutKeys(rule.special, rule.first, share, tuple(labels))
    return None


def _heads_alike(heads: Sequence[ChosenHead]) -> Iterator[list[int]]:
    """Yields the indices of heads that share their attention call, the part of it that is shown, and the mask."""
    calls: dict[tuple[int, int, int, int, int], dict[int, int]] = {}  # the index of each head of a part of a call
    for index, head in enumerate(heads):
        spans = (head.queries.start, head.queries.stop, head.keys.start, head.keys.stop)
        calls.setdefault((id(head.maps), *spans), {})[head.head] = index
    for indices in calls.values():
        maps = heads[next(iter(indices.values()))].maps
        for group in maps.head_groups(tuple(indices)):
            yield [indices[head] for head in group]


def asked_query(queries: Tokens, span: slice) -> int:
    """Returns the query whose row stands for all heads over a picture or a sound where none is chosen.

    It is the last word, which in a causal model has read all; without words the class token, such as ``[CLS]``; and
    without one -1, the mean of all queries. It is counted from the first query of the span.
    """
    has_no_place = queries.medium[span] < 0
    is_text = in_text(queries)[span] & ~queries.special[span]
    is_word = is_text & [any(map(str.isalnum, label)) for label in queries.labels[span]]
    for is_candidate, place in ((is_word, -1), (queries.special[span] & has_no_place, 0)):
        if is_candidate.any():
            return int(np.flatnonzero(is_candidate)[place])
    return -1


def is_causal(maps: LayerMaps, head: int) -> bool:
    """True if the first query of a text sees only itself, and later ones see more."""
    tokens = maps.query_tokens
    first = tokens.unpadded.start
    return (
        maps.kind == "self"
        and tokens.unpadded.stop - first > 1
        and maps.visible_key_counts(head, slice(first, first + 1))[0] == 1
    )


@dataclass(frozen=True)
class Phrase:
    """A part of the first sentence, with the address of what it speaks of on the page."""

    text: str
    address: str = ""  # such as ``head=2.8&query=it``; "" if the words lead nowhere


@dataclass(frozen=True, eq=False)
class RowOfHeads:
    """What one query looks at in several heads."""

    heads: Sequence[ChosenHead]  # over the same queries and keys
    query: int
    weights: Float64Array  # ``(heads, keys)`` of all keys; 0 where they are masked
    visible: BoolArray  # ``(heads, keys)``
    set_apart: BoolArray  # ``(keys,)``, the special tokens and the first one, on which many heads rest

    @classmethod
    def of(cls, heads: Sequence[ChosenHead], query: int, sets_apart: bool = True) -> Self | None:
        """Returns the row of a query; ``None`` unless the heads have weights of single cells over the same keys."""
        axes = {(head.maps.item, head.maps.query_tokens.labels, head.maps.key_tokens.labels) for head in heads}
        if len(axes) != 1 or any(known_cells(head.maps) is None or head.maps.quantity != "weight" for head in heads):
            return None
        tokens = heads[0].maps.key_tokens
        span, keys = slice(query, query + 1), slice(0, len(tokens))
        windows = [cell_maps(head.maps).window((head.head,), span, keys) for head in heads]
        set_apart = tokens.special & sets_apart
        set_apart[tokens.unpadded.start] |= sets_apart
        visible = np.stack([window.visible[0] for window in windows])
        is_other = visible.any(axis=0) & ~set_apart
        is_distant = is_other & (np.abs(np.arange(len(tokens)) - query) >= MIN_DISTANCE)
        if is_other.sum() < MIN_OTHER_KEYS or not is_distant.any():
            return None
        weights = np.nan_to_num(np.stack([window.weights[0, 0] for window in windows])).astype(np.float64)
        return cls(heads, query, weights, visible, set_apart)

    @property
    def mean(self) -> Float64Array:
        """The mean over the heads, ``(keys,)``; a key that a head cannot see counts with 0, so that it sums to 1."""
        return np.asarray(self.weights.mean(axis=0))

    @property
    def min_look(self) -> int:
        """The least percentage of a row on one key that is a look at it, which the sentence says."""
        return max(MIN_LOOK, math.ceil(100 * MIN_LOOK_LIFT / int(self.visible.any(axis=0).sum())))

    @cached_property
    def looks(self) -> list[tuple[int, list[int]]]:
        """The keys at which heads look most, and the indices of these heads: most heads, and largest weights, first.

        Keys that are set apart do not count. Heads that look most at the query itself or at a neighbour are left out.
        """
        weights = np.where(self.set_apart, 0, self.weights)
        keys, peaks = weights.argmax(axis=1), weights.max(axis=1)
        looks_away = (peaks >= self.min_look / 100) & (np.abs(keys - self.query) >= MIN_DISTANCE)
        heads_of_key: dict[int, list[int]] = {}
        for head in np.argsort(-peaks, kind="stable").tolist():
            if looks_away[head]:
                heads_of_key.setdefault(int(keys[head]), []).append(head)
        return sorted(heads_of_key.items(), key=lambda look: -len(look[1]))

    @property
    def telling_heads(self) -> list[int]:
        """The indices of the heads that look at a key: the strongest of each key, then the second ones, and so on."""
        ranked = [(rank, head) for _, heads in self.looks for rank, head in enumerate(heads)]
        return [head for _, head in sorted(ranked, key=lambda entry: entry[0])]

    def text(self, noun: str = "token") -> str:
        """Returns the sentence on the query as text."""
        return "".join(phrase.text for phrase in self.sentence(noun))

    def sentence(self, noun: str = "token") -> tuple[Phrase, ...]:
        """Returns the sentence on the query: its weight on what is set apart, and where heads look beside it.

        The noun is that of a row, such as ``word``.
        """
        queries, keys = self.heads[0].maps.query_tokens, self.heads[0].maps.key_tokens
        is_last = self.query == queries.unpadded.stop - 1
        query_address = f"query={quote(place_name(queries, self.query))}"
        name = quoted(queries.labels[self.query])
        phrases = [Phrase(f"{name}, the last {noun}" if is_last else name, query_address)]

        share = float(self.mean[self.set_apart].sum())
        if share >= MIN_SAID_SHARE:
            resting = np.flatnonzero(self.set_apart & (self.mean >= MIN_SAID_SHARE / MAX_LABELS)).tolist()
            labels = dict.fromkeys(keys.labels[key] if keys.special[key] else "the first token" for key in resting)
            rest = " and ".join(labels) if len(labels) < MAX_LABELS else "special tokens"
            comma = "," if is_last else ""
            phrases.append(Phrase(f"{comma} puts {share:.0%} of its weight on {rest} on average; beside that,"))
        else:
            phrases.append(Phrase(":"))
        count = len(self.heads)
        if not self.looks:
            other = "a token further back" if is_causal(self.heads[0].maps, self.heads[0].head) else "a token elsewhere"
            return (*phrases, Phrase(f" none of {count} heads singles out {other}."))
        for number, (key, heads) in enumerate(self.looks[:MAX_SAID_KEYS]):
            of_all = f" of {count} heads look" if len(heads) > 1 else f" of {count} heads looks"
            verb = f" {len(heads)}{of_all} most" if not number else f", {len(heads)}"
            is_repeated = [label.strip("␣ ") for label in keys.labels].count(keys.labels[key].strip("␣ ")) > 1
            place = f"{quoted(keys.labels[key])}{f' ({key})' if is_repeated else ''}"
            phrases += [Phrase(f"{verb} at "), Phrase(place, f"key={quote(place_name(keys, key))}")]
            if not number:
                phrases.append(Phrase(f" with {self.min_look}% or more"))
            for rank, head in enumerate(heads[:MAX_SAID_HEADS]):
                name = self.heads[head].name
                address = f"head={name}&{query_address}&key={quote(place_name(keys, key))}"
                phrases += [
                    Phrase(", " if rank else " ("),
                    Phrase(f"{self.weights[head, key]:.0%} in {name}", address),
                ]
            phrases.append(Phrase(")"))
        return (*phrases, Phrase("."))


def row_of_last_token(heads: Sequence[ChosenHead], sets_apart: bool = True) -> RowOfHeads | None:
    """Returns the row of the last token of a causal text, from which the model predicts; ``None`` for other maps."""
    if not heads or not all(is_causal(head.maps, head.head) for head in heads):
        return None
    tokens = heads[0].maps.query_tokens
    if any(isinstance(medium, Image | Sound) for medium in tokens.media):
        return None
    return RowOfHeads.of(heads, tokens.unpadded.stop - 1, sets_apart)


def first_sentence(
    heads: Sequence[ChosenHead], frame: "HeadFrame", left_out: LeftOutKeys | None, last_row: RowOfHeads | None = None
) -> tuple[Phrase, ...]:
    """Returns the sentence on what stands out: the heads of each pattern, the clearest heads, the strongest weight.

    Of a causal text, whose last token's row is given, what this token looks at comes first and no other weight after
    it. The rows of the frame are those of the heads. Empty if no head has a clear pattern and no weight is strong.
    """
    from attnviz.metrics.patterns import BY_RARITY, beside_phrase, clearest_first, is_beside_larger_sink

    clauses: list[list[Phrase]] = []
    counts: list[Phrase] = []
    names_of_rows = [[(p.name, p.token) for p in row.patterns if not p.is_beside] for row in frame.rows]
    for name in BY_RARITY:
        numbers = [index for index, names in enumerate(names_of_rows) if name in [first for first, _ in names]]
        if not numbers:
            continue
        plural = "" if len(numbers) == 1 else "s"
        if name == "sink":
            tokens = {token for index in numbers for first, token in names_of_rows[index] if first == name}
            on_token = f" on {next(iter(tokens))}" if len(tokens) == 1 else ""
            counts.append(Phrase(f"{len(numbers)} sink{plural}{on_token}", f"filter={quote('sink:')}"))
        else:
            beside = sum(is_beside_larger_sink(frame.rows[index].patterns) for index in numbers)
            text = f"{len(numbers)} {name.replace(' ', '-')} head{plural}{beside_phrase(beside, len(numbers))}"
            counts.append(Phrase(text, f"filter={quote(name)}"))
    if counts:
        clauses.append([part for phrase in counts for part in (Phrase(", "), phrase)][1:])
        named_rows = [(index, row.first_pattern) for index, row in enumerate(frame.rows) if row.first_pattern.value]
        clearest = [index for index in clearest_first(named_rows) if frame.rows[index].first_pattern.name != "sink"]
        links = [Phrase(heads[index].name, f"head={heads[index].name}") for index in clearest[:MAX_CLEAREST]]
        if links:
            plural = "s" if links[1:] else ""
            clauses.append(
                [Phrase(f"clearest head{plural}: "), *[part for link in links for part in (Phrase(", "), link)][1:]]
            )
    strongest = None if last_row is not None else _strongest_weight(heads, frame, left_out)
    if strongest is not None:
        head, query, key, weight = strongest
        query_tokens, key_tokens = head.maps.query_tokens, head.maps.key_tokens
        labels = [quoted(tokens.labels[token]) for tokens, token in ((query_tokens, query), (key_tokens, key))]
        address = f"query={quote(place_name(query_tokens, query))}&key={quote(place_name(key_tokens, key))}"
        text = f"{labels[0]} looks most at {labels[1]} (head {head.name}, {weight:.0%})"
        clauses.append([Phrase(text, f"head={head.name}&{address}")])
    separated = [part for clause in clauses for part in (Phrase("; "), *clause)][1:]
    patterns = (*separated, Phrase(".")) if separated else ()
    if last_row is None:
        return patterns
    return (*last_row.sentence(), Phrase(" "), *patterns) if patterns else last_row.sentence()


def turns_sentence(heads: Sequence[ChosenHead]) -> tuple[Phrase, ...]:
    """Returns the sentence on what the last turn of a chat looks at, on average and in the head that looks most.

    The rows and columns of the heads are turns. Empty if no turn is before the last one.
    """
    tokens = heads[0].maps.query_tokens
    last = len(tokens) - 1
    earlier = np.flatnonzero(~tokens.special[:last] & (tokens.medium[:last] >= 0))
    alike = [head for head in heads if head.maps.query_tokens.labels == head.maps.key_tokens.labels == tokens.labels]
    if not len(earlier) or not alike:
        return ()
    rows = (cell_maps(head.maps).window((head.head,), slice(last, last + 1), head.keys) for head in alike)
    shares = np.nan_to_num(np.stack([row.weights[0, 0] for row in rows]))
    means = shares.mean(axis=0)
    query = f"query={quote(place_name(tokens, last))}"

    phrases = [Phrase(f"{quoted(tokens.labels[last])} looks {means[last]:.0%} at itself")]
    for turn in earlier[np.argsort(-means[earlier], kind="stable")][:MAX_SAID_TURNS].tolist():
        address = f"{query}&key={quote(place_name(tokens, turn))}"
        phrases += [Phrase(", "), Phrase(f"{means[turn]:.0%} at {quoted(tokens.labels[turn])}", address)]
    head, column = divmod(int(shares[:, earlier].argmax()), len(earlier))
    turn, name = int(earlier[column]), alike[head].name
    text = f"{name} looks {shares[head, turn]:.0%} at {quoted(tokens.labels[turn])}"
    address = f"head={name}&{query}&key={quote(place_name(tokens, turn))}"
    return (*phrases, Phrase(" on average; head "), Phrase(text, address), Phrase("."))


def _strongest_weight(
    heads: Sequence[ChosenHead], frame: "HeadFrame", left_out: LeftOutKeys | None
) -> tuple[ChosenHead, int, int, float] | None:
    """Returns the head, query, key and weight of the strongest look from a word to a distant word, if one is strong."""
    cells = sum((head.queries.stop - head.queries.start) * (head.keys.stop - head.keys.start) for head in heads)
    if cells > MAX_SEARCHED_CELLS:
        return None
    strongest = (MIN_STRONG_WEIGHT, -1, 0, 0)  # the weight, the index of its head, the query and the key
    for group in _heads_alike(heads):
        some_head = heads[group[0]]
        maps, queries, keys = known_cells(some_head.maps), some_head.queries, some_head.keys
        if maps is None or maps.quantity != "weight":
            continue
        is_word = [  # and not a later piece of one, which means little alone
            ~tokens.special[span]
            & [any(map(str.isalnum, label)) for label in tokens.labels[span]]
            & ((np.diff(tokens.words, prepend=-1) != 0) | (tokens.words < 0))[span]
            for tokens, span in ((maps.query_tokens, queries), (maps.key_tokens, keys))
        ]
        is_word[0] &= ~maps.query_tokens.in_image[queries]  # a patch is no word
        if left_out is not None:
            is_word[1] &= ~left_out.among(maps.key_tokens, keys)
        distances = np.arange(queries.start, queries.stop)[:, None] - np.arange(keys.start, keys.stop)
        has_choice = maps.visible_key_counts(some_head.head, queries) > MIN_OTHER_KEYS
        is_candidate = (np.abs(distances) >= MIN_DISTANCE) & (is_word[0] & has_choice)[:, None] & is_word[1]
        for index in group:
            if frame.rows[index].first_pattern.name in BY_DISTANCE:
                continue
            weights = maps.window((heads[index].head,), queries, keys).weights[0]
            candidates = np.where(is_candidate & ~np.isnan(weights), weights, 0)
            row, column = divmod(int(candidates.argmax()), candidates.shape[1])
            weight = float(candidates[row, column])
            # Of equal weights that of the last head.
            strongest = max(strongest, (weight, index, queries.start + row, keys.start + column))
    weight, index, query, key = strongest
    return (heads[index], query, key, weight) if index >= 0 else None
