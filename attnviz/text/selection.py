"""Parses the user's selection of layers, heads, queries and keys, and the grouping of tokens."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NoReturn, Self, get_args

from attnviz.base.errors import AttnvizError, number_ranges, option, or_list
from attnviz.base.options import Option, not_blank
from attnviz.text.head_name import HeadName, KnownHead, parse_head_name, split_tower

MAX_LISTED_HEADS = 12  # names in a message
MAX_NAMED_NUMBERS = 100_000  # in a list, after its ranges are expanded
Span = tuple[int | None, int | None]
AttentionPart = Literal["encoder", "decoder", "cross"]  # the attention modules of an encoder-decoder
ATTENTION_PARTS: tuple[AttentionPart, ...] = get_args(AttentionPart)
# What is recorded: the softmax attention of a part, or the implicit attention of linear layers, which have no weights
RecordedAttention = Literal[AttentionPart, "implicit"]
IMPLICIT: Literal["implicit"] = "implicit"


@dataclass(frozen=True)
class Selection:
    """The layers, heads, queries and keys to capture and show; ``None`` stands for all.

    Attributes:
        layers: layer numbers, from 0.
        heads: head numbers, from 0, in every chosen layer.
        pairs: ``(layer, head)`` or ``(layer, head, part)``, which users write ``layer.head`` or ``part:layer.head``;
            heads are shown in this order.
        queries: start and stop of the queries; ``None`` leaves an end open, a negative number counts from the end.
        keys: start and stop of the keys, in the same way.
        tower: ``text`` or ``picture``, the tower of a vision-language model that has the heads; ``None`` if not named.
        layer_parts: the part of the model that each of ``layers`` is in, "" for any; ``None`` for any throughout.

    Raises:
        AttnvizError: if no pair is in ``layers``.

    Example:
        >>> Selection.parse(heads="4.11,9.6", queries=":40").pairs
        ((4, 11), (9, 6))
        >>> Selection(layers=(0, 1), queries=(None, 40)).layers
        (0, 1)
    """

    layers: tuple[int, ...] | None = None
    heads: tuple[int, ...] | None = None
    pairs: tuple[tuple[int, int] | tuple[int, int, str], ...] | None = None
    queries: Span = (None, None)
    keys: Span = (None, None)
    tower: str | None = None
    layer_parts: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.chosen_layers == () and self.pairs and self.layers:
            heads = ",".join(map(str, self.names or ()))
            layers = ",".join(map(str, self.layers))
            raise AttnvizError(
                f"{option('heads', heads)} are in none of {option('layers', layers)}; leave out one of the two"
            )

    @classmethod
    def parse(
        cls,
        layers: Annotated[str | None, Option("Select layers, such as 0-3,7, or encoder:0-3.")] = None,
        heads: Annotated[
            str | None,
            Option(
                "Select heads, such as 0,2-3, or layer.head, such as 4.11,9.0-3 or encoder:4.11; 'picture 0.3' names a "
                "tower too.",
                brief="Select heads: 0,2-3, or layer.head: 4.11,9.6.",
            ),
        ] = None,
        queries: Annotated[str | None, Option("Select a query or a range, such as 12 or 10:40.")] = None,
        keys: Annotated[str | None, Option("Select a range of keys, such as :20.")] = None,
    ) -> Self:
        """Returns the selection that strings of the command line describe.

        Args:
            layers: a list with ranges, such as ``0-3,7``; a part of the model may stand before each, ``encoder:0-3``.
            heads: a list with ranges, or names ``layer.head`` such as ``4.11,encoder:9.0-3``; the word ``text``
                or ``picture`` before them names their tower.
            queries: a range of tokens, such as ``10:40``.
            keys: a range of tokens, such as ``:20``.

        Raises:
            AttnvizError: if a string has another form, heads are not of one tower, or none of the pairs is in the
                selected layers.
        """
        tower, heads = (None, None) if heads is None else split_tower(heads)
        names_pairs = heads is not None and "." in heads
        pairs: tuple[tuple[int, int] | HeadName, ...] | None = None
        if heads is not None and names_pairs:
            names = [parse_head_name(name) for entry in heads.split(",") for name in _single_names(entry)]
            if None in names:
                raise AttnvizError(
                    f"{option('heads')} {heads!r} is not a list of heads in one form; write 4.11,9.6 (layer.head) "
                    "or 0-3,7"
                )
            _refuse_repeats(heads, "heads", names)
            pairs = tuple(name if name.part else name[:2] for name in names if name is not None)
        layer_numbers, layer_parts = (None, None) if layers is None else _parse_layers(layers)
        return cls(
            layers=layer_numbers,
            layer_parts=layer_parts,
            heads=parse_numbers(heads, "heads") if heads is not None and not names_pairs else None,
            pairs=pairs,
            queries=_parse_span(queries, "queries"),
            keys=_parse_span(keys, "keys"),
            tower=tower,
        )

    @property
    def names(self) -> tuple[HeadName, ...] | None:
        """The heads that are selected by name; ``None`` if none are."""
        return None if self.pairs is None else tuple(HeadName(*pair) for pair in self.pairs)

    @property
    def chosen_layers(self) -> tuple[int, ...] | None:
        """The layers that have selected heads; ``None`` for all."""
        if self.names is None:
            return None if self.layers is None else tuple(dict.fromkeys(self.layers))
        layers_of_heads = dict.fromkeys(name.layer for name in self.names)
        return tuple(layer for layer in layers_of_heads if self.layers is None or layer in self.layers)

    def heads_of(self, layer: int) -> tuple[int, ...] | None:
        """Returns the selected heads of a layer, in the user's order; ``None`` for all, an empty tuple for none.

        ``layers`` is not considered, nor are parts: heads of one number in several parts are one here.

        Args:
            layer: the number of the layer.
        """
        if self.names is None:
            return self.heads
        return tuple(dict.fromkeys(name.head for name in self.names if name.layer == layer))

    def indices_in(self, known: Sequence[KnownHead], silent: Mapping[int, str] | None = None) -> list[int]:
        """Returns the indices of the selected heads, in the order of the selection.

        Without named layers, all layers are selected; without named heads in a layer, all its heads.

        Args:
            known: the heads to select from.
            silent: what layers without heads compute, by their number, for the refusal of one.
        """
        indices: dict[int, dict[int, list[int]]] = {}  # by layer and head
        for index, head in enumerate(known):
            indices.setdefault(head.layer, {}).setdefault(head.head, []).append(index)
        refuse_missing(self.chosen_layers, tuple(indices), "layer", silent)
        for layer in self.chosen_layers or indices:
            refuse_missing(self.heads_of(layer), tuple(indices[layer]), f"head in layer {layer}:")
        if self.names is not None:
            found: dict[int, None] = {}
            for name in self.names:
                if self.layers is not None and name.layer not in self.layers:
                    continue
                # A name means one head, which has an index in each text of a batch.
                of_number = indices[name.layer][name.head]
                exact = [index for index in of_number if known[index].part.casefold() == name.part.casefold()]
                fitting = exact or [index for index in of_number if known[index].fits(name.part)]
                if not fitting:
                    refuse_unknown_part(str(name), [known[index] for index in of_number])
                possible = tuple(dict.fromkeys(known[index].name for index in fitting))
                if len(possible) > 1:
                    heads = option("heads", str(name))
                    raise AttnvizError(f"{heads} could be {len(possible)} heads; write {_listed(possible)}")
                found |= dict.fromkeys(fitting)
            return list(found)
        chosen: dict[int, None] = {}
        layers = tuple(indices) if self.layers is None else self.layers
        for layer, part in zip(layers, self.layer_parts or [""] * len(layers), strict=True):
            of_layer = [index for of_head in indices[layer].values() for index in of_head]
            fitting = [index for index in sorted(of_layer) if known[index].fits(part)]
            if not fitting:
                refuse_unknown_part(f"{part}:{layer}", [known[index] for index in of_layer])
            chosen |= dict.fromkeys(index for index in fitting if self.heads is None or known[index].head in self.heads)
        return list(chosen)


def refuse_unknown_part(name: str, heads: Sequence[KnownHead]) -> NoReturn:
    """Raises AttnvizError for a name whose part none of the heads of its number has; the message lists their names."""
    names = tuple(dict.fromkeys(head.name for head in heads))
    raise AttnvizError(f"no head or layer {name!r} is in that part of the model; write {_listed(names)}")


def _listed(names: Sequence[str]) -> str:
    """Lists the names that would have worked, in one line."""
    return or_list(names) if len(names) <= MAX_LISTED_HEADS else or_list([*names[:MAX_LISTED_HEADS], "another"])


def parse_head(head: str) -> tuple[int, int]:
    """Returns the layer and the number of the head that a text names, as ``0.1``, or ``1`` for a head of layer 0."""
    refusal = AttnvizError(f"{option('head')} {head!r} is not one head; give 1 or 0.1 (layer.head)")
    try:
        selection = Selection.parse(heads=head)
    except AttnvizError as error:
        raise refusal from error
    if selection.tower is not None:
        raise AttnvizError(
            f"{option('head')} {head!r} names a tower; give 0.1, which is of the picture tower if the input is only a "
            "picture"
        )
    names = selection.names or tuple(HeadName(0, number) for number in selection.heads or ())
    if len(names) != 1:
        raise refusal
    if names[0].part:
        raise AttnvizError(
            f"{option('head')} {head!r} names a part of the model; give {names[0].layer}.{names[0].head}, and choose "
            f"the part with {option('attention', 'encoder')}, decoder or cross"
        )
    return names[0].layer, names[0].head


def _group_names() -> dict[str, str]:
    """Returns the names of groups that ``--by`` knows, each with an empty description, for completion."""
    from attnviz.text.named_groups import NAMES

    return dict.fromkeys(NAMES, "")


@dataclass(frozen=True)
class Grouping:
    """The user's choice of the units that rows and columns stand for, and of hiding special tokens.

    Attributes:
        by: the name of the groups in the plural, or a regular expression; ``tokens`` for single tokens, and ``None``
            for the turns of a chat where a view opens with them, else also for single tokens.
        words: if true, tokens are joined to words.
        special: if false, special tokens are hidden; ``None`` hides them as keys of overviews that they would dominate.
        renormalize: if true, each row is divided by its sum.

    Raises:
        AttnvizError: if ``words`` is true and ``by`` names other groups, or ``by`` is not a regular expression.
    """

    by: Annotated[
        str | None,
        Option(
            "Join tokens to words, sentences, lines, paragraphs, the texts of a pair, the turns of a chat, passages, "
            "or parts that begin where a regular expression matches.",
            brief="Join tokens to words, sentences, turns, …",
            names=_group_names,
        ),
    ] = None
    words: Annotated[bool, Option("Join the tokens of each word.")] = False
    special: Annotated[
        bool | None,
        Option("Show or hide special tokens, such as [CLS]; overviews leave out sinks unless you choose."),
    ] = None
    renormalize: Annotated[bool, Option("Divide each row by its sum, so that it sums to 100%.")] = False

    def __post_init__(self) -> None:
        if self.by is None:
            return
        from attnviz.text.named_groups import NAMES, compile_mark, plural

        not_blank("by", self.by)
        name = plural(self.by)
        if self.words and name != "words":
            raise AttnvizError(f"{option('by', self.by)} and words=True join different tokens; choose one of them")
        if name not in NAMES:
            compile_mark(name, "by")  # raises if it is not a regular expression
        object.__setattr__(self, "by", name)

    @property
    def units(self) -> str:
        """The name of the groups that rows and columns stand for, as in `named_groups`; ``tokens`` for no groups."""
        return "words" if self.words else self.by or "tokens"

    @property
    def keeps_tokens(self) -> bool:
        """True if rows and columns are all single tokens, with the weights that they have."""
        return self.units == "tokens" and not (self.hides_special or self.renormalize)

    @property
    def hides_special(self) -> bool:
        """True if special tokens are hidden in every picture."""
        return self.special is False


def parse_numbers(text: str, name: str) -> tuple[int, ...]:
    """Returns the numbers of a list with ranges such as ``0-3,7``, in its order."""
    numbers = _listed_numbers(text, name)
    _refuse_repeats(text, name, numbers)
    return tuple(numbers)


def _single_names(entry: str) -> list[str]:
    """Returns the names of heads that an entry such as ``4.0-3`` stands for; an entry without a range is one."""
    layer, _, numbers = entry.rpartition(".")
    return [f"{layer}.{number}" for number in _listed_numbers(numbers, "heads")] if "-" in numbers else [entry]


def _refuse_repeats(text: str, name: str, items: Sequence[object]) -> None:
    repeated_item = next((item for item, count in Counter(items).items() if count > 1), None)
    if repeated_item is not None:
        numbers = [item for item in dict.fromkeys(items) if isinstance(item, int)]
        once = number_ranges(numbers).replace(" ", "") if numbers else ",".join(map(str, dict.fromkeys(items)))
        raise AttnvizError(f"{option(name)} {text!r} names {repeated_item} more than once; write {once}")


def _listed_numbers(text: str, name: str) -> list[int]:
    numbers: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,7})\s*(?:-\s*(\d{1,7})\s*)?", part, re.ASCII)
        if match is None:
            raise AttnvizError(
                f"{option(name)} {text!r} is not a list of numbers; write one such as 0-3,7 (counted from 0)"
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise AttnvizError(f"{option(name)} {text!r} counts backwards in {part.strip()!r}; write {last}-{first}")
        if len(numbers) + last - first + 1 > MAX_NAMED_NUMBERS:
            raise AttnvizError(
                f"{option(name)} names more than {MAX_NAMED_NUMBERS} numbers; write fewer, such as 0-3,7"
            )
        numbers += range(first, last + 1)
    return numbers


def resolve_span(span: Span, count: int, name: str) -> slice:
    """Returns a span as a slice whose start and stop are numbers from 0 to ``count``."""
    start, stop, _ = slice(*span).indices(count)
    span_start, span_stop = span
    if span_start is not None and span_stop is not None and 0 <= span_stop < span_start:
        backwards, forwards = f"{span_start}:{span_stop}", f"{span_stop}:{span_start}"
        raise AttnvizError(f"{option(name, backwards)} counts backwards; write {forwards}")
    bounds = option(name, ":".join("" if end is None else str(end) for end in span))
    choice = "there is only one, so use 0:1" if count == 1 else f"there are {count}, so use 0:{count} or a part of it"
    if start >= stop:
        raise AttnvizError(f"no tokens at {bounds}; {choice}")
    if span_stop is not None and span_stop > count:
        raise AttnvizError(f"{bounds} ends after the last token; {choice}")
    return slice(start, stop)


def refuse_missing(
    chosen_numbers: tuple[int, ...] | None, existing: Sequence[int], noun: str, silent: Mapping[int, str] | None = None
) -> None:
    """Raises AttnvizError if a chosen number does not exist.

    Args:
        chosen_numbers: the numbers that the user chose; ``None`` for all.
        existing: the numbers that exist.
        noun: what the numbers count.
        silent: what is at the numbers that exist without attention, such as ``linear attention``.
    """
    missing_numbers = [number for number in chosen_numbers or () if number not in existing]
    if missing_numbers:
        numbers = number_ranges(existing)
        # numbers of layers come from names of modules, and may begin later
        counting = " (counted from 0)" if existing[0] == 0 else ""
        choice = (f"there is only {numbers}" if len(existing) == 1 else f"there are {numbers}") + counting
        contents = [(silent or {}).get(number) for number in missing_numbers]
        if contents[0] is not None and len(set(contents)) == 1:
            layers = f"{noun}{'s' if len(missing_numbers) > 1 else ''} {number_ranges(missing_numbers)}"
            raise AttnvizError(f"{layers}: {contents[0]}, nothing to draw; {choice}")
        raise AttnvizError(f"no {noun} {number_ranges(missing_numbers)}; {choice}")


def _parse_layers(text: str) -> tuple[tuple[int, ...], tuple[str, ...] | None]:
    """Returns the numbers of a list of layers such as ``encoder:0-3,7``, and their parts, ``None`` without any."""
    parts, _, ranges = zip(*(item.rpartition(":") for item in text.split(",")), strict=True)
    if not any(parts):
        return parse_numbers(",".join(ranges), "layers"), None
    _listed_numbers(",".join(ranges), "layers")  # raises if all parts together name too many
    layers = [parse_numbers(numbers, "layers") for numbers in ranges]
    parts_of_layers = (part.strip() for part, numbers in zip(parts, layers, strict=True) for _ in numbers)
    return tuple(number for numbers in layers for number in numbers), tuple(parts_of_layers)


def _parse_span(text: str | None, name: str) -> Span:
    """Returns start and stop of a range such as ``10:40``, or a number; ``None`` for an open end, as without a text."""
    if text is None:
        return None, None
    if re.fullmatch(r"-?\d{1,12}", text.strip(), re.ASCII):
        only = int(text)
        return only, only + 1 or None  # the last token, -1, has no number after it
    match = re.fullmatch(r"(-?\d{1,12})?\s*:\s*(-?\d{1,12})?", text.strip(), re.ASCII)
    if match is None:
        raise AttnvizError(f"{option(name)} {text!r} is not a range of tokens; write 5, 10:40 or :20 (counted from 0)")
    start, stop = (int(end) if end else None for end in match.groups())
    return start, stop
