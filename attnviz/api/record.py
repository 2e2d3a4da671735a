"""Records the attention of any torch module during the forward passes of the caller."""

from collections.abc import Iterable, Sized
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn, Protocol, cast, runtime_checkable

from torch import nn

from attnviz.api.recording import DrawableRecording
from attnviz.base.errors import AttnvizError, install
from attnviz.capture.capture_block import CaptureBlock
from attnviz.capture.labels import CaptureOptions, LabelsOfIds, TokenLabels, square_of_patches
from attnviz.capture.model_calls import name_of
from attnviz.maps.layer_maps import LayerMaps, known_cells
from attnviz.maps.recording import Recording
from attnviz.text.selection import RecordedAttention, Selection


@runtime_checkable
class Tokenizer(Protocol):
    """A tokenizer of transformers."""

    def convert_ids_to_tokens(self, ids: Any) -> Any:
        """Returns the names of ids."""


@runtime_checkable
class BareTokenizer(Protocol):
    """A tokenizer of the library tokenizers."""

    def id_to_token(self, id: int) -> Any:
        """Returns the name of an id."""


class _LiveRecording(DrawableRecording):
    """A recording whose ``with`` block still runs: it has no maps, and becomes a `DrawableRecording` at the end."""

    def __init__(self, name: str) -> None:
        vars(self).update(model=name, failed=False)  # a frozen dataclass takes no assignment

    def __getattr__(self, name: str) -> NoReturn:
        """Raises AttnvizError for an attribute that exists only after the block, AttributeError for any other."""
        if name not in self.__dataclass_fields__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if vars(self).get("failed"):
            raise AttnvizError(f"the recording has no {name}, since its with block failed; record again")
        raise AttnvizError(f"the recording has no {name} while its with block runs; read {name} after the block")

    def __repr__(self) -> str:
        """Returns a sentence that says whether the ``with`` block still runs, or has failed."""
        if vars(self).get("failed"):
            return f"Recording of {self.model}, empty, since its with block failed"
        return f"Recording of {self.model}, still running: it has its maps after the with block"

    def _repr_html_(self) -> None:
        """Returns ``None``, so that a notebook shows ``repr`` instead of a page."""

    def fail(self) -> None:
        """Marks the recording as failed: it stays empty."""
        vars(self)["failed"] = True

    def finish(self, recording: Recording) -> None:
        """Turns this object into the given recording, frozen as any other."""
        vars(self).clear()
        vars(self).update(vars(recording))
        object.__setattr__(self, "__class__", DrawableRecording)


def record(
    model: nn.Module,
    layers: Iterable[int] | None = None,
    heads: Iterable[int] | None = None,
    *,
    attention: RecordedAttention | None = None,
    tokens: TokenLabels | Tokenizer | BareTokenizer | None = None,
    context: TokenLabels | Tokenizer | BareTokenizer | None = None,
    stop: bool = False,
    dense: bool | None = None,
    values: bool = False,
    name: str | None = None,
) -> AbstractContextManager[DrawableRecording]:
    """Records the attention of all forward passes of a model in a ``with`` block.

    The block yields a recording, which has its maps once the block has ended. Passes that continue a text, as the steps
    of ``generate()`` do, are joined to one map per head; other passes count as further texts. The model's results stay
    the same to the bit unless ``values`` is true, and the model is unchanged afterwards. A layer has the number in the
    path of its module. Only chosen layers and heads are computed and kept.

    Blocks may be nested and run in several threads. Each block records the thread that entered it; if the model did not
    run there, it records the one other thread in which the model ran.

    Args:
        model: any module; its attention is ``scaled_dot_product_attention``, torch's own layers, transformers'
            attention interface, or a softmax whose result multiplies the values.
        layers: numbers of the layers, from 0; ``None`` for all.
        heads: numbers of the heads, from 0; ``None`` for all.
        attention: ``encoder``, ``decoder`` or ``cross`` to record only that attention of an encoder-decoder; or
            ``implicit`` to record the implicit attention of linear layers (gated delta net, Mamba, RWKV 7, …) instead
            of softmax attention: its weights have either sign, and are those by which a layer sums its values.
        tokens: labels of the queries: strings or ``Tokens``, for all texts or one list per text, of all tokens or of
            the real ones without padding; or a function that returns them at the end of the block, such as for a text
            that is generated in it; or the model's tokenizer, which labels the ids that the model reads.
            `attnviz.patches` and `attnviz.frames` give tokens with places in a picture or sound. Labels that fit the
            keys alone are theirs, unless the model has a decoder. A remark names labels that fit no text, with the
            numbers of tokens.
        context: labels of the keys, where they are other tokens than the queries, and of an encoder; in the same forms.
        stop: if true, the forward pass ends after the last chosen layer, or before the model computes logits of its
            vocabulary, and the rest of the block does not run.
        dense: true for whole maps, false for factors where a call has them; ``None`` for factors of long maps only.
            Without factors, a map of more than 2,048 tokens is pooled unless this is true.
        values: if true, value norms ‖v·W_O‖ of each head and key are kept, from which contributions are computed.
            The block then disables the fused kernels of torch's own layers, whose results may differ by rounding.
        name: the model's name in pictures and on slides; ``None`` for its attribute ``name`` if that is a text, else
            the name of its class.

    Raises:
        AttnvizError: if ``model`` is no module, or is compiled, scripted or exported to one graph; if ``attention`` is
            unknown, or the block is entered again; at the end of the block, if there was no attention, a chosen layer
            or head does not exist, or the model ran in several other threads; inside the block, if the maps are used.

    Example:
        >>> import torch
        >>> model = torch.nn.TransformerEncoderLayer(d_model=8, nhead=2, batch_first=True).eval()
        >>> with record(model, heads=[1], tokens=["a", "b", "c"]) as recording:
        ...     output = model(torch.rand(1, 3, 8))
        >>> recording.maps[0].weights.shape  # (heads, queries, keys)
        (1, 3, 3)
    """
    selection = Selection(
        layers=None if layers is None else tuple(layers), heads=None if heads is None else tuple(heads)
    )
    options = CaptureOptions(
        selection=selection,
        attention=attention,
        tokens=_labels_by("tokens", tokens),
        context=_labels_by("context", context),
        stop=stop,
        dense=dense,
        values=values,
    )
    return _RecordBlock(CaptureBlock(model, options), name or name_of(model))


def _labels_by(name: str, labels: TokenLabels | Tokenizer | BareTokenizer | None) -> TokenLabels | None:
    """Returns labels unchanged, and a tokenizer as the labels of the ids that the model reads."""
    if isinstance(labels, BareTokenizer):
        try:
            from transformers import PreTrainedTokenizerFast
        except ImportError as error:
            raise AttnvizError(f"a Tokenizer needs transformers; run {install('hf')}, or give labels") from error
        labels = cast("Tokenizer", PreTrainedTokenizerFast(tokenizer_object=labels))  # type: ignore[no-untyped-call]
    if isinstance(labels, Tokenizer):
        from attnviz.models.huggingface.tokens import tokens_of_bare_ids

        return LabelsOfIds(partial(tokens_of_bare_ids, cast("Any", labels)))
    if labels is not None and not callable(labels) and not isinstance(labels, Sized):
        raise AttnvizError(f"{name} is {type(labels).__name__}; give a list of labels, a tokenizer, or a function")
    return labels


def _advice_on_patches(all_maps: Iterable[LayerMaps]) -> tuple[str, ...]:
    """Returns how to place tokens if they may be a square of patches and some more; empty if none may be."""
    for maps in all_maps:
        count = len(maps.key_tokens)
        square = square_of_patches(count)
        has_more = square is not None and square[1] > 0 and count == len(maps.query_tokens)  # a square alone: any text
        # The queries of a causal text are no patches.
        cells = known_cells(maps)
        if has_more and cells is not None:
            first_row = cells.window(maps.heads[:1], slice(0, 1), slice(0, count))
            if first_row.visible.all():
                return (
                    f"If the {count} tokens are patches of a picture and some more, "
                    "attnviz.reading(model, function, images=[picture]) finds their places and draws heads over it, "
                    "for a function from a PIL image to the model's input; or say them by "
                    "tokens=attnviz.patches(picture, grid=(rows, columns), extra=1).",
                )
    return ()


class _RecordBlock(AbstractContextManager[DrawableRecording]):
    """The context manager that ``record`` returns: it enters its block once, and yields the recording."""

    def __init__(self, block: CaptureBlock, name: str) -> None:
        self.block, self.name, self.recording = block, name, _LiveRecording(name)

    def __enter__(self) -> DrawableRecording:
        self.block.__enter__()
        return self.recording

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        """Finishes the recording, or leaves it empty after an error; True if the capture itself ended the block."""
        was_stopped = self.block.__exit__(kind, error, trace)
        self.recording.fail()
        if error is None or was_stopped:
            recording = self.block.recording()
            are_unlabelled = self.block.options.tokens is None and self.block.options.context is None
            advice = _advice_on_patches(recording.maps) if are_unlabelled else ()
            self.recording.finish(replace(recording, model=self.name, advice=(*recording.advice, *advice)))
        return was_stopped
