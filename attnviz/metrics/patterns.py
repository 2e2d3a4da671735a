"""A head's numbers to what it does, in plain words, where the numbers are clear.

The rules, in this order; each needs a number that is a mean over `MIN_QUERIES` queries or more, so that one lucky token
names nothing:

- ``uniform``: a relative entropy of at least `MIN_UNIFORM_ENTROPY`.
- ``induction``, ``previous token``, ``next token``, ``own token``, ``duplicate token``, ``sink``, ``other sentence``:
  at least `MIN_CLEAR_SHARE` of the weight, so that all else together has less; the largest first, `MAX_NAMES` at most.
  A sink is said with its token.
- ``own sentence``: at least `MIN_WIDE_SHARE` of the weight within the query's sentence. ``local``: at least
  `MIN_WIDE_SHARE` of it within a few tokens, in texts of `MIN_LOCAL_TOKENS` tokens or more: in shorter ones any head
  is local.
- ``mixed``: none of these.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

Item = TypeVar("Item")

MIN_QUERIES = 3
MIN_UNIFORM_ENTROPY = 0.97
MIN_CLEAR_SHARE = 0.5
MIN_WIDE_SHARE = 0.8
MIN_LOCAL_TOKENS = 20
MAX_NAMES = 2

SHARP = {
    "induction": "induction",
    "previous": "previous token",
    "next": "next token",
    "self": "own token",
    "duplicate": "duplicate token",
    "sink": "sink",
    "pair": "other sentence",
}
OWN_SENTENCE, LOCAL = "own sentence", "local"
MEASURED = ("relative-entropy", *SHARP, "block", "locality")  # the metrics that patterns are named by


@dataclass(frozen=True)
class Pattern:
    """One thing that a head does.

    Attributes:
        name: in plain words, such as ``previous token``.
        value: the number that shows it; ``None`` for ``uniform`` and ``mixed``.
        token: of a sink, the one that receives most.
    """

    name: str
    value: float | None = None
    token: str = ""

    def __str__(self) -> str:
        """The pattern as a reader sees it, such as ``sink: [CLS] 0.83``."""
        token = f": {self.token}" if self.token else ""
        return f"{self.name}{token}" + ("" if self.value is None else f" {self.value:.2f}")


UNIFORM, MIXED = Pattern("uniform"), Pattern("mixed")
# From what is seldom and tells most to what many heads do.
TELLING = (*(name for name in SHARP.values() if name != "sink"), OWN_SENTENCE, LOCAL, "sink")
ORDER = (*TELLING, UNIFORM.name, MIXED.name)


def find_patterns(numbers: Mapping[str, float], counts: Mapping[str, int], keys: int, sink: str) -> tuple[Pattern, ...]:
    """Finds what a head does, the clearest first; nothing where there are no numbers.

    Args:
        numbers: its metrics by name; NaN where one has no meaning.
        counts: how many queries, or texts, each is a mean of.
        keys: how many keys its queries see in all.
        sink: the label of the token that receives most.
    """
    values = {name: value for name, value in numbers.items() if counts[name] >= MIN_QUERIES}
    if all(math.isnan(value) for value in values.values()):
        return ()
    if values.get("relative-entropy", 0) >= MIN_UNIFORM_ENTROPY:
        return (UNIFORM,)
    clear = {name: value for name in SHARP if (value := values.get(name, math.nan)) >= MIN_CLEAR_SHARE}
    if clear:
        best = sorted(clear, key=lambda name: clear[name], reverse=True)[:MAX_NAMES]
        return tuple(Pattern(SHARP[name], clear[name], sink if name == "sink" else "") for name in best)
    if values.get("block", 0) >= MIN_WIDE_SHARE:
        return (Pattern(OWN_SENTENCE, values["block"]),)
    if values.get("locality", 0) >= MIN_WIDE_SHARE and keys >= MIN_LOCAL_TOKENS:
        return (Pattern(LOCAL, values["locality"]),)
    return (MIXED,)


def clearest_first(found: Iterable[tuple[Item, Pattern]]) -> list[Item]:
    """What goes with each pattern, in the order in which a reader should meet them.

    The best of each pattern comes first, then the second best of each, and so on. Patterns come in the order of
    `TELLING`; what is uniform or mixed is last.
    """
    seen: Counter[str] = Counter()
    ranked = []
    for item, pattern in sorted(found, key=lambda pair: -(pair[1].value or 0)):
        ranked.append(((pattern in (UNIFORM, MIXED), seen[pattern.name], ORDER.index(pattern.name)), item))
        seen[pattern.name] += 1
    return [item for _, item in sorted(ranked, key=lambda entry: entry[0])]


def summed_up(patterns: Iterable[Pattern]) -> str:
    """How many heads do what, in the order of `TELLING`: ``2 previous token, 31 sinks on [CLS], 38 mixed``."""
    by_name: dict[str, list[Pattern]] = {}
    for pattern in patterns:
        by_name.setdefault(pattern.name, []).append(pattern)
    return ", ".join(_counted(by_name[name]) for name in ORDER if name in by_name)


def _counted(alike: list[Pattern]) -> str:
    name = alike[0].name
    if name != "sink":
        return f"{len(alike)} {name}"
    [(token, count)] = Counter(pattern.token for pattern in alike).most_common(1)
    most = f" on {token}" if count == len(alike) else f" ({count} on {token})"
    return f"{len(alike)} sink{'s' if len(alike) > 1 else ''}{most}"
