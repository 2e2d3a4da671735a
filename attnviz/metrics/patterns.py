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

from attnviz.metrics.metrics import HeadNumbers

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


def name_pattern(numbers: HeadNumbers) -> str:
    """What the head does, such as ``previous token 0.98`` or ``sink: [CLS] 0.83``; "" where there are no numbers."""
    values = {name: value for name, value in numbers.values.items() if numbers.counts[name] >= MIN_QUERIES}
    if all(math.isnan(value) for value in values.values()):
        return ""
    if values.get("relative-entropy", 0) >= MIN_UNIFORM_ENTROPY:
        return "uniform"
    clear = {name: value for name in SHARP if (value := values.get(name, math.nan)) >= MIN_CLEAR_SHARE}
    if clear:
        best = sorted(clear, key=lambda name: clear[name], reverse=True)[:MAX_NAMES]
        return ", ".join(f"{_named(name, numbers)} {clear[name]:.2f}" for name in best)
    if values.get("block", 0) >= MIN_WIDE_SHARE:
        return f"own sentence {values['block']:.2f}"
    if values.get("locality", 0) >= MIN_WIDE_SHARE and numbers.keys >= MIN_LOCAL_TOKENS:
        return f"local {values['locality']:.2f}"
    return "mixed"


def _named(name: str, numbers: HeadNumbers) -> str:
    return f"sink: {numbers.sink_label}" if name == "sink" else SHARP[name]
