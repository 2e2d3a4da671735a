"""Which layers, heads, queries and keys were asked for, and how a user writes that down."""

import re
from dataclasses import dataclass
from typing import Literal, Self, get_args

from attnviz.base.errors import AttnvizError, number_ranges

MAX_NUMBER = 1_000_000  # of a layer or head, where a range goes further
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

    @classmethod
    def parse(
        cls, layers: str | None = None, heads: str | None = None, queries: str | None = None, keys: str | None = None
    ) -> Self:
        """The selection written as on the command line: ``0-3,7``, ``4.11,9.6``, ``10:40``.

        Raises:
            AttnvizError: for anything else, with an example of what works.
        """
        in_pairs = heads is not None and "." in heads
        pairs = _parse_pairs(heads) if heads is not None and in_pairs else None
        return cls(
            layers=parse_numbers(layers, "--layers") if layers is not None else None,
            heads=parse_numbers(heads, "--heads") if heads is not None and not in_pairs else None,
            pairs=pairs,
            queries=_parse_span(queries, "--queries"),
            keys=_parse_span(keys, "--keys"),
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


def parse_numbers(text: str, what: str) -> tuple[int, ...]:
    """The numbers of a list with ranges such as ``0-3,7``, in the order given, each once.

    Raises:
        AttnvizError: for anything else; ``what`` names the option in the message.
    """
    numbers: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,7})\s*(?:-\s*(\d{1,7})\s*)?", part, re.ASCII)
        if match is None:
            raise AttnvizError(f"{what} {text!r} is not a list of numbers; 0-3,7 works (counted from 0)")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise AttnvizError(f"{what} {text!r} counts backwards in {part.strip()!r}; {last}-{first} works")
        numbers += range(first, min(last, MAX_NUMBER) + 1)
    return tuple(dict.fromkeys(numbers))


def resolve_span(span: Span, count: int, what: str) -> slice:
    """The span as a slice with both ends within ``count`` tokens.

    Raises:
        AttnvizError: if it lies outside or is empty.
    """
    start, stop, _ = slice(*span).indices(count)
    if start >= stop or (span[1] or 0) > count:
        ends = ("" if end is None else str(end) for end in span)
        raise AttnvizError(f"no tokens at --{what} {':'.join(ends)}; there are {count}, so 0:{count} works")
    return slice(start, stop)


def refuse_missing(wanted: tuple[int, ...] | None, present: tuple[int, ...], what: str) -> None:
    """Raises AttnvizError where a number is wanted that is not present."""
    missing = [number for number in wanted or () if number not in present]
    if missing:
        numbers = number_ranges(present)
        there = f"only {numbers} is there" if len(present) == 1 else f"there are {numbers}"
        raise AttnvizError(f"no {what} {number_ranges(missing)}; {there} (counted from 0)")


def _parse_pairs(text: str) -> tuple[tuple[int, int], ...]:
    matches = [re.fullmatch(r"\s*(\d{1,7})\.(\d{1,7})\s*", part, re.ASCII) for part in text.split(",")]
    if not all(matches):
        raise AttnvizError(f"--heads {text!r} mixes forms; 4.11,9.6 (layer.head) or 0-3,7 works")
    return tuple(dict.fromkeys((int(match[1]), int(match[2])) for match in matches if match))


def _parse_span(text: str | None, what: str) -> Span:
    if text is None:
        return None, None
    match = re.fullmatch(r"\s*(-?\d{1,12})?\s*:\s*(-?\d{1,12})?\s*", text, re.ASCII)
    if match is None:
        raise AttnvizError(f"{what} {text!r} is not a range of tokens; 10:40 or :20 works (counted from 0)")
    start, stop = (int(end) if end else None for end in match.groups())
    return start, stop
