"""Which layers, heads, queries, keys and tokens are shown, and how a user writes that down."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Self, TypedDict, get_args

from attnviz.base.errors import AttnvizError, number_ranges, option
from attnviz.base.options import Option

MAX_NAMED_NUMBERS = 100_000  # of layers or heads, by a list with ranges
Span = tuple[int | None, int | None]
AttentionPart = Literal["encoder", "decoder", "cross"]  # of an encoder-decoder
ATTENTION_PARTS: tuple[AttentionPart, ...] = get_args(AttentionPart)


@dataclass(frozen=True)
class Selection:
    """A choice of what to capture and show; ``None`` stands for everything.

    Attributes:
        layers: layer numbers, from 0.
        heads: head numbers, from 0, in every chosen layer.
        pairs: ``(layer, head)`` pairs, written ``layer.head``; shown in this order.
        queries: start and stop of the queries shown, either end ``None``; negative counts from the end.
        keys: the same for keys.
    """

    layers: tuple[int, ...] | None = None
    heads: tuple[int, ...] | None = None
    pairs: tuple[tuple[int, int], ...] | None = None
    queries: Span = (None, None)
    keys: Span = (None, None)

    def __post_init__(self) -> None:
        if self.chosen_layers == () and self.pairs and self.layers:
            named = ",".join(f"{layer}.{head}" for layer, head in self.pairs)
            layers = ",".join(map(str, self.layers))
            raise AttnvizError(
                f"{option('heads', named)} are in none of {option('layers', layers)}; leave out one of them"
            )

    @classmethod
    def parse(
        cls,
        layers: Annotated[str | None, Option("Select layers, as 0-3,7.")] = None,
        heads: Annotated[
            str | None,
            Option(
                "Select heads, as 0,2-3, or layer.head as 4.11,9.6.",
                brief="Select heads, as 0,2-3, or layer.head as 4.11,9.6.",
            ),
        ] = None,
        queries: Annotated[str | None, Option("Select a range of queries, as 10:40.")] = None,
        keys: Annotated[str | None, Option("Select a range of keys, as :20.")] = None,
    ) -> Self:
        """The selection as a user writes it: ``0-3,7``, ``4.11,9.6``, ``10:40``.

        Raises:
            AttnvizError: for anything else, with an example of what works.
        """
        in_pairs = heads is not None and "." in heads
        pairs = _parse_pairs(heads) if heads is not None and in_pairs else None
        return cls(
            layers=parse_numbers(layers, "layers") if layers is not None else None,
            heads=parse_numbers(heads, "heads") if heads is not None and not in_pairs else None,
            pairs=pairs,
            queries=_parse_span(queries, "queries"),
            keys=_parse_span(keys, "keys"),
        )

    @property
    def chosen_layers(self) -> tuple[int, ...] | None:
        """The layers that hold anything chosen, or ``None`` for all."""
        if self.pairs is None:
            return self.layers
        wanted = dict.fromkeys(layer for layer, _ in self.pairs)
        return tuple(layer for layer in wanted if self.layers is None or layer in self.layers)

    def heads_of(self, layer: int) -> tuple[int, ...] | None:
        """The heads chosen in a layer, or ``None`` for all."""
        if self.pairs is None:
            return self.heads
        return tuple(head for pair_layer, head in self.pairs if pair_layer == layer)


class SelectionOptions(TypedDict, total=False):
    """The parameters of ``Selection.parse``, for the type checker: what Python's callers may give by name."""

    layers: str | None
    heads: str | None
    queries: str | None
    keys: str | None


def _units() -> dict[str, str]:
    from attnviz.text.named_groups import NAMES

    return dict.fromkeys(NAMES, "")


@dataclass(frozen=True)
class Grouping:
    """What rows and columns stand for: tokens, or groups of them, and which tokens are left out."""

    by: Annotated[
        str | None,
        Option(
            "Join the tokens of words, sentences, lines, paragraphs, texts of a pair, or parts that begin where a "
            "regular expression matches.",
            names=_units,
        ),
    ] = None
    words: Annotated[bool, Option("Join the tokens of each word.", brief="Join the tokens of each word.")] = False
    no_special: Annotated[bool, Option("Hide special tokens such as [CLS].")] = False
    renormalize: Annotated[bool, Option("Rescale rows to sum to 100 % over what is shown.")] = False

    def __post_init__(self) -> None:
        if self.by is None:
            return
        from attnviz.text.named_groups import NAMES, TOKENS, compile_mark, plural

        if self.words and plural(self.by) != "words":
            words, by = option("words", True), option("by", self.by)
            raise AttnvizError(f"{words} joins the tokens of words, and {by} others; one of them works")
        if plural(self.by) not in NAMES:
            compile_mark(self.by, "by")
        object.__setattr__(self, "by", None if plural(self.by) == TOKENS else plural(self.by))

    @property
    def units(self) -> str:
        """The groups that rows and columns stand for, as `named_groups` takes them."""
        return "words" if self.words else self.by or "tokens"


class GroupingOptions(TypedDict, total=False):
    """The fields of ``Grouping``, for the type checker."""

    by: str | None
    words: bool
    no_special: bool
    renormalize: bool


def parse_numbers(text: str, name: str) -> tuple[int, ...]:
    """The numbers of a list with ranges such as ``0-3,7``, in the order given, each once.

    Raises:
        AttnvizError: for anything else; ``name`` is that of the option in the message.
    """
    numbers: dict[int, None] = {}
    named = 0
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,7})\s*(?:-\s*(\d{1,7})\s*)?", part, re.ASCII)
        if match is None:
            raise AttnvizError(f"{option(name)} {text!r} is not a list of numbers; 0-3,7 works (counted from 0)")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise AttnvizError(f"{option(name)} {text!r} counts backwards in {part.strip()!r}; {last}-{first} works")
        named += last - first + 1
        if named > MAX_NAMED_NUMBERS:
            raise AttnvizError(
                f"{option(name)} names more than {MAX_NAMED_NUMBERS} numbers; 0-3,7 works (counted from 0)"
            )
        numbers |= dict.fromkeys(range(first, last + 1))
    return tuple(numbers)


def resolve_span(span: Span, count: int, name: str) -> slice:
    """The span as a slice with both ends within ``count`` tokens.

    Raises:
        AttnvizError: if it lies outside or is empty.
    """
    start, stop, _ = slice(*span).indices(count)
    if start >= stop or (span[1] or 0) > count:
        ends = ("" if end is None else str(end) for end in span)
        raise AttnvizError(f"no tokens at {option(name, ':'.join(ends))}; there are {count}, so 0:{count} works")
    return slice(start, stop)


def refuse_missing(wanted: tuple[int, ...] | None, present: Sequence[int], what: str) -> None:
    """Raises AttnvizError where a number is wanted that is not present."""
    missing = [number for number in wanted or () if number not in present]
    if missing:
        numbers = number_ranges(present)
        there = f"only {numbers} is there" if len(present) == 1 else f"there are {numbers}"
        raise AttnvizError(f"no {what} {number_ranges(missing)}; {there} (counted from 0)")


def _parse_pairs(text: str) -> tuple[tuple[int, int], ...]:
    matches = [re.fullmatch(r"\s*(\d{1,7})\.(\d{1,7})\s*", part, re.ASCII) for part in text.split(",")]
    if not all(matches):
        raise AttnvizError(f"{option('heads')} {text!r} mixes forms; 4.11,9.6 (layer.head) or 0-3,7 works")
    return tuple(dict.fromkeys((int(match[1]), int(match[2])) for match in matches if match))


def _parse_span(text: str | None, name: str) -> Span:
    if text is None:
        return None, None
    match = re.fullmatch(r"\s*(-?\d{1,12})?\s*:\s*(-?\d{1,12})?\s*", text, re.ASCII)
    if match is None:
        raise AttnvizError(f"{option(name)} {text!r} is not a range of tokens; 10:40 or :20 works (counted from 0)")
    start, stop = (int(end) if end else None for end in match.groups())
    return start, stop
