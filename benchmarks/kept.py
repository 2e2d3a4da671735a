"""Measures what a cache keeps against torch's attention of the whole text, at 8,192 tokens.

``python -m benchmarks kept`` prints, for each policy, the time for 256 steps of 4 heads after the prompt over the time
of these heads' attention. Seconds are those that the process computes, so that a busy machine counts less.
"""

import torch
from torch.nn import functional

from attnviz.attention.mask import Mask
from attnviz.maps.factored import FactoredMaps
from attnviz.maps.recording import Recording
from attnviz.metrics.kept import measure_kept
from attnviz.streaming.factors import Factors
from attnviz.text.selection import Selection
from attnviz.text.tokens import Tokens
from benchmarks.units import ratio_of, verdict

TOKENS, STEPS, HEADS, KEY_HEADS, FEATURES = 8192, 256, 4, 2, 64
LIMITS = {"sinks:4+recent:1020": 1.1, "snapkv:1024": 1.1, "top:1024": 4.0, "h2o:1024": 4.0}


def main() -> None:
    """Prints the ratio of each policy with its limit."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    queries, keys = torch.randn(HEADS, TOKENS, FEATURES), torch.randn(KEY_HEADS, TOKENS, FEATURES)
    recording = Recording(maps=(maps_of(queries, keys),), model="random")
    selection = Selection(queries=(TOKENS - STEPS, None))

    def attention() -> object:
        return functional.scaled_dot_product_attention(
            queries[None], keys[None], keys[None], is_causal=True, enable_gqa=True
        )

    for policy, limit in LIMITS.items():
        ratio, seconds = ratio_of(lambda policy=policy: measure_kept(recording, selection, [policy]), attention)  # type: ignore[misc]
        print(f"{policy}: {ratio:.2f} of attention (at most {limit}, {verdict(ratio <= limit)}; {seconds:.3f} s)")


def maps_of(queries: torch.Tensor, keys: torch.Tensor) -> FactoredMaps:
    """Causal maps of queries and keys, both ``(heads, tokens, features)``."""
    group, hidden = HEADS // KEY_HEADS, torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)
    logsumexp = torch.stack(
        [
            (queries[head] @ keys[head // group].T * FEATURES**-0.5).masked_fill_(hidden, -torch.inf).logsumexp(-1)
            for head in range(HEADS)
        ]
    )
    tokens = Tokens.numbered(TOKENS)
    factors = Factors(
        queries=queries.numpy(),
        keys=keys.numpy(),
        key_heads=tuple(head // group for head in range(HEADS)),
        scale=FEATURES**-0.5,
        logsumexp=logsumexp.numpy(),
        mask=Mask(causal=True),
    )
    return FactoredMaps(
        layer=0, module="", heads=tuple(range(HEADS)), query_tokens=tokens, key_tokens=tokens, factors=factors
    )
