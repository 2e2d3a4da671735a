"""Measures the steps in which a model wrote a text, from a recording."""

from typing import TYPE_CHECKING

from attnviz.text.selection import Selection

if TYPE_CHECKING:
    from attnviz.maps.recording import Recording
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
