"""Measures the steps in which a model wrote a text, and what a cache would keep of them, from a recording."""

from typing import TYPE_CHECKING

from attnviz.text.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnviz.maps.recording import Recording
    from attnviz.metrics.kept import KeptMass
    from attnviz.metrics.steps import DecodingSteps


def steps(
    recording: "Recording",
    by: str | None = None,
    *,
    layers: str | None = None,
    heads: str | None = None,
    queries: str | None = None,
) -> "DecodingSteps":
    """Returns the share of attention on each turn, passage or sentence for each token that a model wrote.

    ``attnviz steps`` prints the same numbers.

    Args:
        recording: the recording of a text that was generated, or of any text that was read from left to right.
        by: the units: ``turns``, ``passages``, ``sentences`` or any other name of ``--by``; ``None`` for the first of
            turns, passages, texts of a pair and sentences that the text has, else for tokens.
        layers: layers as ``0-3,7``.
        heads: heads as ``4.11,9.6``; without layers and heads, the head in which a unit stands out most, or
            all if none does.
        queries: the queries whose rows are the steps, as ``10:40``; ``None`` for those that wrote the generated tokens,
            else the last turn or passage, else all tokens but the first.

    Raises:
        AttnvizError: if the model sees later tokens, or the recording has no such heads, queries or units.

    Example:
        >>> import attnviz, torch
        >>> module = attnviz.MultiHeadAttention(embed_dim=8, num_heads=2, causal=True)
        >>> with attnviz.record(module, tokens=["The", "sky", "is", "blue"]) as recording:
        ...     output = module(torch.rand(1, 4, 8))
        >>> decoding = attnviz.steps(recording, heads="0.1")
        >>> decoding.tokens, decoding.shares.shape  # (heads, steps, units)
        (('sky', 'is', 'blue'), (1, 3, 1))
    """
    from attnviz.metrics.steps import measure_steps

    return measure_steps(recording, Selection.parse(layers=layers, heads=heads, queries=queries), by)


def kept(
    recording: "Recording",
    policies: "Sequence[str]" = (),
    *,
    layers: str | None = None,
    heads: str | None = None,
    queries: str | None = None,
) -> "KeptMass":
    """Returns the share of each row's weight that a key-value cache would still hold if it dropped keys.

    ``attnviz kept`` prints the same numbers.

    Args:
        recording: the recording of a text that was generated.
        policies: the policies, as ``sinks:4+recent:60``, ``h2o:64``, ``snapkv:64,window=16``, ``quest:64,page=16`` or
            ``top:64``; empty for one of each kind but ``quest``, each with half of the keys.
        layers: layers as ``0-3,7``; ``None`` for all.
        heads: heads as ``4.11,9.6``; ``None`` for all.
        queries: the queries that attend to the cache, as ``384:``; ``None`` for the generated tokens, else the last
            turn or passage.

    Raises:
        AttnvizError: if a policy cannot be read, or holds all keys; if no queries are given and nothing is known to be
            generated; or if the model sees later tokens.

    Example:
        >>> import attnviz, torch
        >>> module = attnviz.MultiHeadAttention(embed_dim=8, num_heads=2, causal=True)
        >>> with attnviz.record(module) as recording:
        ...     output = module(torch.rand(1, 12, 8))
        >>> mass = attnviz.kept(recording, ["sinks:1+recent:3", "top:4"], queries="8:")
        >>> mass.kept.shape, mass.held[0, 0].tolist()  # (policies, heads, steps)
        ((2, 2, 4), [4, 4, 4, 4])
    """
    from attnviz.metrics.kept import default_policies, measure_kept

    selection = Selection.parse(layers=layers, heads=heads, queries=queries)
    return measure_kept(recording, selection, policies or default_policies(recording, selection))
