"""Defines which calls of a forward pass are recorded, and gives the tokens of a recording the user's labels.

Labels may be those of all tokens, or of the real ones alone, without padding and without a prefix. A list for each text
goes to the text that has its ids, where both are known.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from attnviz.base.arrays import BoolArray, IntArray
from attnviz.base.errors import AttnvizError, number_ranges, or_list
from attnviz.capture.assembly.captured_call import CapturedCall, position_of_queries
from attnviz.capture.calls.attention_call import AttentionCall
from attnviz.capture.flow.sites import CallSite
from attnviz.maps.derived import NO_CONTRIBUTIONS
from attnviz.media.image import Image
from attnviz.text.named_groups import GENERATED, with_generated_from
from attnviz.text.selection import ATTENTION_PARTS, IMPLICIT, RecordedAttention, Selection
from attnviz.text.tokens import Tokens, labels_given

TextLabels = Sequence[str] | Tokens


@dataclass(frozen=True)
class LabelsOfIds:
    """Labels that follow from the ids that the model reads."""

    tokens_of: Callable[[list[int]], Tokens]


class UnboundedPatches(Tokens):
    """The patches of a grid that lies over whole pictures, since the caller did not say which part the model reads."""


TokenLabels = TextLabels | Sequence[TextLabels] | LabelsOfIds | Callable[[], TextLabels | Sequence[TextLabels]]


MAX_EXTRA_TOKENS = 16  # before patches, such as [CLS] and registers
MIN_PATCHES_A_SIDE = 7  # as ViTs of 224 pixels have at least
MOST_EXTRA = 5  # tokens beside the patches of a square that nobody named: [CLS] and four registers
REAL_IDS = 1  # the tokens with ids that are no padding, among `_Axis.kinds`
ALL_KINDS = range(6)


@dataclass(frozen=True, eq=False)
class _Axis:
    """The tokens of one text in a call: the keys of self-attention, with its queries among them, or one of both."""

    is_real: BoolArray  # ``(tokens,)``, False for padding, which no query sees
    ids: IntArray  # ``(tokens,)``, the ids that the model read; -1 where they are unknown
    queries: slice  # the tokens that are queries, too
    extra: int  # how many labels may follow those of the tokens: no step reads the last token that is written
    sources: tuple[str, ...]  # the names of the labels that the tokens may have, the first that fit before the others

    @cached_property
    def kinds(self) -> list[IntArray]:
        """The tokens that labels may belong to, in their order: those with ids, all, or the queries; or the real ones.

        Ids come first, since labels come from them as a rule.
        """
        tokens = np.arange(len(self.ids))
        wholes = tokens[self.ids >= 0], tokens, tokens[self.queries]
        return [places for whole in wholes for places in (whole, whole[self.is_real[whole]])]

    def kind_of(self, count: int, kinds: Sequence[int]) -> int | None:
        """Returns the first of some kinds whose tokens are as many as the labels; ``None`` without any."""
        for extra in dict.fromkeys((self.extra, 0)):
            for kind in kinds:
                if len(self.kinds[kind]) and count == len(self.kinds[kind]) + extra:
                    return kind
        return None

    def has_ids_of(self, labels: TextLabels) -> bool:
        """True if the labels have ids, and the model read exactly these."""
        kind = self.kind_of(len(labels), ALL_KINDS)
        if kind is None or not isinstance(labels, Tokens):
            return False
        ids = labels.ids[: len(self.kinds[kind])]
        return bool((ids >= 0).all()) and np.array_equal(self.ids[self.kinds[kind]], ids)

    def labelled(self, labels: TextLabels | LabelsOfIds, kinds: Sequence[int]) -> tuple[Tokens, BoolArray] | None:
        """Returns the tokens, and True for those that have labels; ``None`` if the labels fit none of the kinds."""
        kind: int | None = REAL_IDS
        if isinstance(labels, LabelsOfIds):
            labels = labels.tokens_of(self.ids[self.kinds[REAL_IDS]].tolist())
        else:
            kind = self.kind_of(len(labels), kinds)
        if kind is None or not len(self.kinds[kind]):
            return None
        places = self.kinds[kind]
        has_label = np.isin(np.arange(len(self.ids)), places)
        if not isinstance(labels, Tokens):
            labels = Tokens.labelled(labels_given(labels), repeats=True)
            if len(labels) == len(places) and (self.ids[places] >= 0).all():
                labels = replace(labels, ids=self.ids[places])
        labels = labels if len(labels) == len(places) else labels.first(len(places))
        if has_label.all():
            return labels, has_label

        indices = np.full(len(self.ids), len(labels))  # of the padding after the labels
        indices[places] = np.arange(len(places))
        tokens = labels.padded(len(labels) + 1).take(indices)
        has_number = self.is_real & ~has_label  # such as a prefix
        names = [str(place) if has_number[place] else label for place, label in enumerate(tokens.labels)]
        return replace(tokens, labels=tuple(names), special=tokens.special & ~has_number), has_label


def without_foreign_ids(calls: Sequence[CapturedCall]) -> list[CapturedCall]:
    """Returns the calls, without ids where fewer than the queries are not theirs, as those of patches beside words.

    Ids after others without any are those of a text after a soft prompt, unless these ids alone are the queries of
    another call, or as many as its keys.
    """

    def read_ids(call: CapturedCall) -> IntArray:
        assert call.ids is not None
        return call.ids[:, (call.ids >= 0).any(axis=0)]

    with_ids = [(call, read_ids(call)) for call in calls if call.ids is not None]
    texts = [ids for call, ids in with_ids if ids.shape[1] in (call.shape[2], call.shape[3] - len(call.extra_keys))]
    foreign = {
        id(call)
        for call, ids in with_ids
        if ids.shape[1] < call.shape[2] and any(np.array_equal(ids, others) for others in texts)
    }
    return [replace(call, ids=None) if id(call) in foreign else call for call in calls]


class GivenLabels:
    """The labels that a user gave, and the texts that they belong to."""

    def __init__(
        self,
        tokens: TokenLabels | None,
        context: TokenLabels | None,
        calls: Sequence[CapturedCall],
        has_decoder: bool = False,
    ) -> None:
        """Finds the text of each list of labels.

        Args:
            tokens: the labels of the queries; without ``context``, and without a decoder, those of the keys if they are
                as many and no queries are.
            context: the labels of the keys of cross-attention, and of an encoder.
            calls: the calls that read the texts.
            has_decoder: True if ``tokens`` are those of a decoder, so that its encoder has ``context`` alone.
        """
        if context is None and has_decoder and isinstance(tokens, LabelsOfIds):
            context = tokens
        self.encoder_sources = ("context",) if has_decoder else ("context", "tokens")
        self.given = {
            name: labels() if callable(labels) else labels
            for name, labels in (("tokens", tokens), ("context", context))
            if labels is not None
        }
        self.are_made_later = {name for name, labels in (("tokens", tokens), ("context", context)) if callable(labels)}
        self.has_crosses = any(call.site.kind == "cross" for call in calls)
        self.axes: dict[int, list[_Axis]] = {}  # by text
        # Cross-attention refers to the axes of self-attention, so that it comes last.
        for call in sorted(calls if self.given else (), key=lambda call: call.site.kind == "cross"):
            for item in range(call.shape[0]):
                self.axes.setdefault(call.text_number(item), []).extend(self._axes_of(call, item))
        fits_keys_alone = self.given.keys() == {"tokens"} and not self._fits("tokens") and self._fits("context")
        if fits_keys_alone and not has_decoder:
            self.given = {"context": self.given["tokens"]}
        self.unused: list[str] = []  # the remarks on labels that fit no tokens, once these are asked for
        self.advice = "; give them as context, which fits" if fits_keys_alone and has_decoder else ""
        self.reordered: list[str] = []  # the names of the lists that are in another order than the texts
        self.kinds: dict[str, Sequence[int]] = {}  # the kinds of tokens that the labels of a name may belong to
        self.labels = {name: self._labels_of_texts(name) for name in self.given}
        self.tokens_of_axes: dict[tuple[object, ...], Tokens | None] = {}
        # The name and the text of all labels that tokens have, and how many queries without labels come before them
        self.used: dict[tuple[str, int], int] = {}

    def _fits(self, name: str) -> bool:
        """True if some tokens that labels of this name may belong to are as many as the labels in ``tokens``."""
        given = self.given["tokens"]
        if isinstance(given, LabelsOfIds):
            return False
        lists = _lists_of(given)
        counts = [len(given)] if lists is None else [len(labels) for labels in lists]
        axes = [axis for axes in self.axes.values() for axis in axes if name in axis.sources]
        return any(axis.kind_of(count, ALL_KINDS) is not None for axis in axes for count in counts)

    def _axes_of(self, call: CapturedCall, item: int) -> list[_Axis]:
        """Returns the axis of the keys, with the queries in it; or those of queries and keys if these are others."""
        _, _, queries, all_keys = call.shape
        keys = all_keys - len(call.extra_keys)
        extra = 1 if call.passes > 1 else 0
        is_real = call.seen_keys(item)[:keys]
        ids = np.full(keys, -1)
        query_ids = np.full(queries, -1) if call.ids is None else call.ids[item]
        sources = self.encoder_sources if call.site.part == "encoder" else ("tokens",)
        if call.site.pools_queries:
            return [
                _Axis(np.ones(queries, dtype=bool), np.full(queries, -1), slice(0), 0, ()),
                _Axis(is_real, ids, slice(0), 0, sources),
            ]
        if call.site.kind == "self" and queries <= keys:
            start = position_of_queries(call, item)
            span = slice(start, start + queries)
            ids[span] = query_ids
            return [_Axis(is_real, ids, span, extra, sources)]
        if call.site.kind == "self":
            all_queries = np.ones(queries, dtype=bool)
            return [
                _Axis(all_queries, query_ids, slice(queries), extra, sources),
                _Axis(is_real, ids, slice(0), 0, sources),
            ]
        axes_of_text = self.axes.get(call.text_number(item), [])
        query_axis = next(
            (axis for axis in axes_of_text if "tokens" in axis.sources and len(axis.ids) == queries), None
        )
        key_axis = next((axis for axis in axes_of_text if "context" in axis.sources and len(axis.ids) == keys), None)
        return [
            query_axis or _Axis(np.ones(queries, dtype=bool), query_ids, slice(queries), extra, ("tokens",)),
            key_axis or _Axis(is_real, ids, slice(0), 0, ("context",)),
        ]

    def _labels_of_texts(self, name: str) -> Mapping[int, TextLabels | LabelsOfIds]:
        """Returns the labels of each text that has any: a common list, or the text's own one."""
        given, lists = self.given[name], _lists_of(self.given[name])
        self.kinds[name] = ALL_KINDS
        if lists is None:
            return dict.fromkeys(self.axes, given)  # type: ignore[arg-type]
        axes = {text: [axis for axis in axes if name in axis.sources] for text, axes in self.axes.items()}
        own = {text: lists[text] for text in axes if text < len(lists)}
        by_ids = {}
        for text, text_axes in axes.items():
            matches = [labels for labels in lists if any(axis.has_ids_of(labels) for axis in text_axes)]
            if matches:
                by_ids[text] = own[text] if any(own.get(text) is labels for labels in matches) else matches[0]
        if by_ids.keys() == axes.keys():
            return by_ids

        for kind in ALL_KINDS:
            if all(any(axis.kind_of(len(own[text]), [kind]) is not None for axis in axes[text]) for text in own):
                self.kinds[name] = [kind]
                return own | by_ids

        # Perhaps the texts are a permutation of the lists, as `encode` sorts them by their lengths.
        counts = Counter(map(len, lists))
        for kind in ALL_KINDS:
            lengths = {text: len(text_axes[0].kinds[kind]) for text, text_axes in axes.items() if text_axes}
            if Counter(lengths.values()) == counts:
                self.kinds[name] = [kind]
                self.reordered.append(name)
                list_of_length = {len(labels): labels for labels in lists if counts[len(labels)] == 1}
                by_length = {text: list_of_length[count] for text, count in lengths.items() if count in list_of_length}
                return by_length | by_ids
        return own | by_ids

    def tokens_of(self, call: CapturedCall, item: int) -> tuple[Tokens, Tokens]:
        """Returns the tokens of the queries and the keys of one text of a call; numbered ones without labels.

        A text written step by step gets the groups ``generated`` unless its labels have groups of this name.
        """
        _, _, queries, all_keys = call.shape
        keys = all_keys - len(call.extra_keys)
        text = call.text_number(item)
        is_shared = call.site.kind == "self" and queries == keys
        query_tokens = key_tokens = None
        axes = self._axes_of(call, item) if self.given else []
        if len(axes) == 2:
            query_tokens, key_tokens = (self._labelled(text, axis, axis.sources) for axis in axes)
        elif axes:
            [axis] = axes
            # The queries' own labels come first, but in a text that is read alone, such as that of an encoder.
            sources = axis.sources[::-1] if self.has_crosses or not is_shared else axis.sources
            query_tokens = self._labelled(text, axis, sources)
            if not is_shared:
                key_tokens = self._labelled(text, axis, axis.sources)
                query_tokens = query_tokens and query_tokens.take(np.arange(keys)[axis.queries])
        query_tokens = query_tokens or Tokens.numbered(queries)
        if call.prompt is not None and GENERATED not in query_tokens.groups:
            query_tokens = with_generated_from(query_tokens, call.prompt)
        key_tokens = query_tokens if is_shared else key_tokens or Tokens.numbered(keys)
        return query_tokens, key_tokens.followed_by(call.extra_keys) if call.extra_keys else key_tokens

    def _labelled(self, text: int, axis: _Axis, sources: Sequence[str]) -> Tokens | None:
        """Returns the tokens of an axis with the first labels that fit: one object for the equal axes of all layers."""
        span = axis.queries.start, axis.queries.stop
        key = text, tuple(sources), axis.is_real.tobytes(), axis.ids.tobytes(), span, axis.extra
        if key not in self.tokens_of_axes:
            self.tokens_of_axes[key] = None
            for name in sources:
                labels = self.labels[name].get(text) if name in self.labels else None
                labelled = None if labels is None else axis.labelled(labels, self.kinds[name])
                if labelled is not None:
                    self.tokens_of_axes[key], has_label = labelled
                    self.used[name, text] = int(np.count_nonzero((axis.is_real & ~has_label)[axis.queries]))
                    break
        return self.tokens_of_axes[key]

    def remarks(self) -> Iterator[str]:
        """Yields sentences on labels that no token has, and on lists in another order than the texts."""
        for name in self.reordered:
            yield (
                f"The texts ran in another order than the lists in {name}: each has the list of its length, or numbers "
                "if others are as long; give the tokenizer instead of lists, and the ids decide."
            )
        for name, given in self.given.items():
            labelled = [text for text in sorted(self.axes) if any(name in axis.sources for axis in self.axes[text])]
            if not labelled:
                yield self._unused(f"{name}, since no attention over such tokens was recorded.")
                continue
            lists, count = _lists_of(given), max(self.axes) + 1
            if lists is not None and len(lists) > count:
                texts = "there is 1 text" if count == 1 else f"there are {count} texts"
                yield f"Not used: lists {number_ranges(range(count, len(lists)))} in {name}, since {texts}."
            elif lists is not None and len(lists) < count:
                texts = number_ranges(range(len(lists), count))
                yield f"Without labels: texts {texts}, since {name} has {len(lists)} lists."
            unused = [text for text in labelled if self.labels[name].get(text) and (name, text) not in self.used]
            if unused:
                labels, axes = self.labels[name][unused[0]], self.axes[unused[0]]
                texts = f"text{'s' if len(unused) > 1 else ''} {number_ranges(unused)}"
                if isinstance(labels, LabelsOfIds):
                    yield f"Without labels: {texts}, since the ids that the model read are unknown."
                else:
                    counts = sorted({int(axis.is_real.sum()) for axis in axes if name in axis.sources})
                    tokens = f"{or_list(counts)} token{'' if counts == [1] else 's'}{self.advice}"
                    missing = _missing_extra(labels, counts)
                    yield self._unused(f"{name} of {texts}: {len(labels)} labels for {tokens}{missing}")
            prefixed = [text for (used_name, text), before in self.used.items() if used_name == name and before]
            if prefixed:
                texts = f"text{'s' if len(prefixed) > 1 else ''} {number_ranges(prefixed)}"
                first_count = self.used[name, prefixed[0]]
                yield f"Without labels: the first {first_count} tokens of {texts}, which have no ids."
        for image, rows, columns in self.stretched_pictures:
            yield (
                f"The {rows} x {columns} patches lie over the whole picture ({image.title}, {image.width} x "
                f"{image.height} pixels), where they are not square: their places are wrong if the model read a crop."
            )

    @property
    def stretched_pictures(self) -> list[tuple[Image, int, int]]:
        """The pictures over the whole of which a grid that was used is not square, with its rows and columns.

        Square patches would have a row or a column more or fewer there; less than that is rounding.
        """
        used = [self.labels[name][text] for name, text in self.used]
        pictures = {}
        for tokens in used:
            if not isinstance(tokens, UnboundedPatches):
                continue
            for index in tokens.image_indices:
                image, boxes = tokens.media[index], tokens.places[tokens.medium == index]
                assert isinstance(image, Image)
                columns, rows = (len(np.unique(boxes[:, side])) for side in (0, 1))
                square_rows, square_columns = columns * image.height / image.width, rows * image.width / image.height
                if max(abs(square_rows - rows), abs(square_columns - columns)) >= 1:
                    pictures[id(image)] = image, rows, columns
        return list(pictures.values())

    def _unused(self, where: str) -> str:
        self.unused.append(f"Not used: the labels in {where}")
        return self.unused[-1]

    def advice_on_pictures(self) -> Iterator[str]:
        """Yields how to say which part of a picture is read, and that of several inputs each has its own picture."""
        for image, rows, columns in self.stretched_pictures[:1]:
            cell = min(image.width / columns, image.height / rows)
            left, top = round((image.width - cell * columns) / 2), round((image.height - cell * rows) / 2)
            middle = (left, top, image.width - left, image.height - top)
            yield (
                f"If the model reads a crop, say which, such as the middle by attnviz.patches(…, box={middle}), or let "
                "attnviz.reading(model, prepare, images=[picture]) measure the places; "
                f"box={(0, 0, image.width, image.height)} says that it squeezes the whole picture."
            )
        for name, given in self.given.items():
            shared = [text for used_name, text in self.used if used_name == name]
            if (
                isinstance(given, Tokens)
                and given.image_indices
                and len(shared) > 1
                and name not in self.are_made_later
            ):
                yield (
                    f"{len(shared)} inputs have the places of one picture: if each has its own, give a list with one "
                    f"for each, {name}=[attnviz.patches(…), attnviz.patches(…)]."
                )


def square_of_patches(count: int) -> tuple[int, int] | None:
    """Returns the patches along a side and the tokens beside them if ``count`` may be those of a square picture."""
    side = math.isqrt(count)
    return (side, count - side**2) if side >= MIN_PATCHES_A_SIDE and count - side**2 <= MOST_EXTRA else None


def _missing_extra(labels: TextLabels, counts: Sequence[int]) -> str:
    """Returns the end of the sentence on labels that do not fit; for patches, the ``extra`` or the grid that would."""
    if not (isinstance(labels, Tokens) and labels.image_indices):
        return "."
    without_place = int((labels.medium < 0).sum())
    differences = [count - len(labels) for count in counts]
    fitting = [more for more in differences if -without_place <= more <= MAX_EXTRA_TOKENS]
    if not fitting:
        squares = [square for count in counts if (square := square_of_patches(count))]
        if not squares or len(labels.image_indices) > 1:
            return "."
        side, extra = squares[0]
        return f": {side} x {side} patches and {extra} more, grid=({side}, {side}), extra={extra}?"
    more = min(fitting, key=abs)
    tokens, of_what = "one token" if abs(more) == 1 else f"{abs(more)} tokens", "labels" if without_place else "grid"
    return f", {tokens} {'more' if more > 0 else 'fewer'} than the {of_what}: extra={without_place + more}?"


def _lists_of(labels: object) -> Sequence[TextLabels] | None:
    """Returns the labels as lists of several texts; ``None`` if all texts have the same labels."""
    if isinstance(labels, Tokens | LabelsOfIds) or not isinstance(labels, Sequence) or not labels:
        return None
    return None if isinstance(labels[0], str) or not isinstance(labels[0], Tokens | Sequence) else labels


ReceiveCall = Callable[[CallSite, tuple[int, ...], AttentionCall, int], None]


@dataclass(frozen=True, eq=False, kw_only=True)
class CaptureOptions:
    """The choice of calls to record, and the labels of their tokens."""

    selection: Selection  # the chosen layers and heads
    # The only attention of an encoder-decoder to record, or the implicit attention of linear layers; ``None`` for all
    # softmax attention
    attention: RecordedAttention | None = None
    # The labels of the queries; a function returns them after the forward passes
    tokens: TokenLabels | None = None
    context: TokenLabels | None = None  # the labels of the keys of cross-attention, in the same forms
    # True to end the forward pass after the last chosen layer, or before it maps to the vocabulary
    stop: bool = False
    dense: bool | None = None  # True for whole maps, False for factors if there are any; ``None`` decides by the length
    values: bool = False  # True to keep the norms of values after the output projection, which contributions need
    factors: bool = False  # True to keep queries and keys beside whole maps too, from which a score is explained
    # True to keep the queries and keys of a call in its order; False moves rows that it gathered back to their places
    in_call_order: bool = False
    # Receives each call with its chosen heads and the number of its first head, instead of a recording
    receive: ReceiveCall | None = None

    def __post_init__(self) -> None:
        """Raises AttnvizError if ``attention`` is not encoder, decoder, cross or implicit, or values do not fit it."""
        if self.attention not in (None, *ATTENTION_PARTS, IMPLICIT):
            raise AttnvizError(f"unknown attention {self.attention!r}; choose {or_list((*ATTENTION_PARTS, IMPLICIT))}")
        if self.attention == IMPLICIT and self.values:
            raise AttnvizError(NO_CONTRIBUTIONS)

    def is_chosen(self, layer: int) -> bool:
        """True if the layer is one of the chosen ones, or no layers are chosen."""
        return self.selection.chosen_layers is None or layer in self.selection.chosen_layers

    def chosen_heads(self, layer: int, heads: range) -> tuple[int, ...]:
        """Returns the chosen ones of ``heads``; all of them if no heads of the layer are chosen."""
        chosen_heads = self.selection.heads_of(layer)
        return tuple(head for head in heads if chosen_heads is None or head in chosen_heads)
