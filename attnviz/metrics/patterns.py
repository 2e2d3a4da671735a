"""A head's numbers to what it does, in plain words, where the numbers are clear.

The rules, in this order; each needs a number that is a mean over `FEWEST` queries or more, so that one lucky token
names nothing:

- ``uniform``: a relative entropy of at least `UNIFORM`.
- ``induction``, ``previous token``, ``next token``, ``own token``, ``duplicate token``, ``sink``, ``other sentence``:
  at least `CLEAR` of the weight, so that all else together has less; the largest first, two at most. A sink is said
  with its token.
- ``own sentence``: at least `WIDE` of the weight within the query's sentence. ``local``: at least `WIDE` of it within
  a few tokens, in texts of `LONG` tokens or more: in shorter ones any head is local.
- ``mixed``: none of these.
"""

import math

from attnviz.metrics.metrics import HeadNumbers

FEWEST = 3
UNIFORM = 0.97
CLEAR = 0.5
WIDE = 0.8
LONG = 20
MOST_NAMES = 2

SHARP = {
    "induction": "induction",
    "previous": "previous token",
    "next": "next token",
    "self": "own token",
    "duplicate": "duplicate token",
    "sink": "sink",
    "pair": "other sentence",
}


def name_pattern(numbers: HeadNumbers) -> str:
    """What the head does, such as ``previous token 0.98`` or ``sink: [CLS] 0.83``; "" where there are no numbers."""
    values = {name: value for name, value in numbers.values.items() if numbers.counts[name] >= FEWEST}
    if all(math.isnan(value) for value in values.values()):
        return ""
    if values.get("relative-entropy", 0) >= UNIFORM:
        return "uniform"
    clear = {name: value for name in SHARP if (value := values.get(name, math.nan)) >= CLEAR}
    if clear:
        best = sorted(clear, key=lambda name: clear[name], reverse=True)[:MOST_NAMES]
        return ", ".join(f"{_named(name, numbers)} {clear[name]:.2f}" for name in best)
    if values.get("block", 0) >= WIDE:
        return f"own sentence {values['block']:.2f}"
    if values.get("locality", 0) >= WIDE and numbers.keys >= LONG:
        return f"local {values['locality']:.2f}"
    return "mixed"


def _named(name: str, numbers: HeadNumbers) -> str:
    return f"sink: {numbers.sink_label}" if name == "sink" else SHARP[name]
