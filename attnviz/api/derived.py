"""Makes recordings and numbers from what exists: arrays, contributions of each key, and the steps of a text."""

from collections.abc import Callable, Iterable
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec

from attnviz.api.recording import DrawableRecording, drawable
from attnviz.arrays import build
from attnviz.maps.recording import Recording
from attnviz.text.selection import Selection

if TYPE_CHECKING:
    from torch import nn

    from attnviz.base.arrays import Float64Array
    from attnviz.maps.recording import Recording
    from attnviz.metrics.steps import DecodingSteps

P = ParamSpec("P")


def _returning_drawable(make_recording: Callable[P, Recording]) -> Callable[P, DrawableRecording]:
    """Returns a function like ``make_recording`` that returns a `DrawableRecording`; signature and docstring stay."""

    @wraps(make_recording)
    def make_drawable(*args: P.args, **kwargs: P.kwargs) -> DrawableRecording:
        return drawable(make_recording(*args, **kwargs))

    return make_drawable


from_arrays = _returning_drawable(build.from_arrays)


def contributions(
    source: "Recording | nn.Module",
    inputs: Any = None,
    layers: Iterable[int] | None = None,
    heads: Iterable[int] | None = None,
    dense: bool | None = None,
) -> DrawableRecording:
    """Returns a recording of contributions ‖α f(x)‖ in place of weights α, with f(x) = (x W_V + b_V) W_O per head.

    Args:
        source: any torch module, or a recording that was made with ``values=True``.
        inputs: the module's arguments: a tensor, a tuple, or a mapping of names. Only for a module.
        layers: numbers of the layers; the module stops after the last of them. ``None`` for all. Only for a module.
        heads: numbers of the heads; ``None`` for all. Only for a module.
        dense: true for whole maps, false for factors; ``None`` for factors of long maps only. Only for a module.

    Returns:
        A recording whose ``weights`` (and those of ``window``) are contributions, ``(heads, queries, keys)``, in the
        units of the output projection's result. ``value_norms_fidelity`` is the largest difference between that result
        and the sum of the vectors.

    Raises:
        AttnvizError: if no linear map directly follows the attention, or the module has no attention.

    Source: Kobayashi et al. 2020, "Attention is Not Only a Weight", equation 4.

    Example:
        >>> import attnviz, torch
        >>> module = attnviz.MultiHeadAttention(embed_dim=8, num_heads=2)
        >>> recording = contributions(module, torch.rand(1, 5, 8))
        >>> recording.maps[0].quantity, recording.maps[0].weights.shape
        ('contribution', (2, 5, 5))
    """
    from attnviz.maps.derived import contributions_of

    if isinstance(source, Recording):
        return drawable(contributions_of(source))
    import torch

    from attnviz.api.record import record
    from attnviz.capture.model_calls import run_model

    with record(source, layers, heads, stop=True, dense=dense, values=True) as recording, torch.no_grad():
        run_model(source, inputs)
    return drawable(contributions_of(recording))


def contacts(recording: "Recording", heads: str | None = None) -> "Float64Array":
    """Returns how strongly heads connect each pair of tokens: the contacts of a protein that attention predicts.

    ``attnviz heads --reference known.pairs`` compares them with known pairs, head by head.

    Args:
        recording: the recording of one text.
        heads: heads as ``4.11,9.6``, whose mean attention counts; ``None`` for all.

    Returns:
        ``(tokens, tokens)``, without special tokens: a_ij − a_i a_j / a, where a_ij is attention in both directions,
        a_i its sum over a row, and a that over all.

    Raises:
        AttnvizError: if there are no such heads, several texts, or cross-attention.

    Source: Rao et al. 2020, "Transformer protein language models are unsupervised structure learners"; the correction
    is that of Dunn et al. 2008.

    Example:
        >>> import attnviz, torch
        >>> module = attnviz.MultiHeadAttention(embed_dim=8, num_heads=2)
        >>> with attnviz.record(module, tokens=attnviz.tokens("EVQLV")) as recording:
        ...     output = module(torch.rand(1, 5, 8))
        >>> attnviz.contacts(recording, "0.1").shape
        (5, 5)
    """
    from attnviz.maps.recording import chosen_heads
    from attnviz.metrics.contacts import contact_scores

    return contact_scores([(head.maps, head.head) for head in chosen_heads(recording, Selection.parse(heads=heads))])


def steps(
    recording: "Recording",
    by: str | None = None,
    *,
    layers: str | None = None,
    heads: str | None = None,
    queries: str | None = None,
) -> "DecodingSteps":
    """Returns the share of attention on each turn, passage or sentence for each token that a model wrote.

    ``attnviz show --style steps`` prints the same numbers.

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
