"""Defines `attnviz.survey`, which surveys a Hugging Face model over texts, or any module over batches of ids."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from attnviz.base.arrays import IntArray
from attnviz.base.errors import AttnvizError
from attnviz.capture.model_calls import evaluation_mode
from attnviz.corpus.batches import Batch, CorpusPictures, SurveyOptions, TextWindow
from attnviz.corpus.read import CorpusText, PassedTexts
from attnviz.corpus.survey import Survey, merge_surveys
from attnviz.corpus.survey_batch import refuse_long_window, survey_of_batch
from attnviz.corpus.survey_corpus import SurveyRun
from attnviz.corpus.token_classes import class_masks
from attnviz.media.image import refuse_single_image
from attnviz.models.huggingface.tokens import decodes_exactly, tokens_of_bare_ids
from attnviz.models.reading.settings import ModelSettings
from attnviz.models.sources import LiveModel
from attnviz.text.selection import Selection
from attnviz.text.tokens import Tokens, tokens_of_pieces

IDS, MASK = "input_ids", "attention_mask"
WORDING_METRICS = ("block", "same-word", "sentence-start")  # need the exact text, for its words and sentences


def survey(
    model: nn.Module,
    tokenizer: Any = None,
    texts: Iterable[str] | None = None,
    *,
    batches: Iterable[Any] | None = None,
    images: Iterable[Any] | None = None,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    tokens: int | None = None,
    window: int | None = None,
    classes: Mapping[str, str] | None = None,
) -> Survey:
    """Returns the survey of every head of a model over many texts, in evaluation mode: without dropout.

    Args:
        model: a Hugging Face transformer, with ``tokenizer`` and ``texts`` or ``images``; or any module, with
            ``batches``.
        tokenizer: the model's tokenizer, or the processor of its images; with ``batches`` it names the tokens. If
            decoding the ids does not return the text, as with WordPiece ("don ' t"), the metrics that read words and
            sentences are omitted.
        texts: the texts, read one by one, so that they may exceed memory.
        batches: the arguments of the module, batch by batch: a tensor, a tuple, or a dictionary of named arguments.
            ``input_ids``, or else the first tensor of whole numbers, holds the ids, ``(texts, tokens)``;
            ``attention_mask`` marks the padding, which must follow the tokens.
        images: paths of PNG, JPEG or WebP files, PIL images, or numpy arrays of bytes ``(rows, columns, 3)``, read one
            by one. Damaged ones are counted in ``skipped``.
        layers: the numbers of the layers; ``None`` for all.
        heads: the numbers of the heads in each layer; ``None`` for all.
        tokens: the number of tokens after which the survey ends; ``None`` for all texts. Not for images.
        window: the most tokens of a text that run at once; longer texts are split. ``None`` skips texts that are too
            long for the model. Only for ``texts``.
        classes: the regular expression of each token class that you define, by the name of the class. Not for images.

    Raises:
        AttnvizError: if not exactly one of texts, batches and images is given; if the tokenizer of texts or the
            processor of images is missing; if an argument is not for images; if there is no text or image; or if the
            model does not attend over a whole batch of texts in one call.

    Example:
        >>> import attnviz, torch
        >>> from attnviz.models.trained import load_model
        >>> batches = [torch.randint(0, 256, (4, 16)) for _ in range(2)]
        >>> summary = attnviz.survey(load_model(), batches=batches)
        >>> summary.texts, summary.tokens, len(summary.heads)
        (8, 128, 4)
    """
    selection = Selection(layers=_tuple(layers), heads=_tuple(heads))
    options = SurveyOptions(
        selection=selection, custom_classes=dict(classes or {}), tokens=tokens, window=window, corpus=("texts",)
    )
    has_one_input = [texts, batches, images].count(None) == 2
    lacks_tokenizer = batches is None and tokenizer is None
    if not has_one_input or lacks_tokenizer:
        raise AttnvizError(
            "a survey needs a tokenizer and texts, a processor and images, or batches; use survey(model, tokenizer, "
            "texts)"
        )
    result: Survey | None = None
    if images is not None:
        refuse_single_image(images)
        for_texts = {"tokens": tokens, "window": window, "classes": classes}
        names = [name for name, value in for_texts.items() if value]
        if names:
            raise AttnvizError(f"{names[0]} is for texts, and images are given; leave it out")
        live = LiveModel(model, tokenizer)
        with live.unchanged():
            image_reader = live.reader(ModelSettings(model=live.name), "images")
            run = SurveyRun(image_reader, replace(options, corpus=("images",), pictures=True))
            result = run.run(CorpusPictures(images, image_reader))
    elif texts is not None:
        with evaluation_mode(model):
            live = LiveModel(model, tokenizer)
            reader = live.reader(ModelSettings(model=live.name), "texts")
            refuse_long_window(reader, window)
            result = SurveyRun(reader, options).run(PassedTexts(texts))
    else:
        assert batches is not None
        with evaluation_mode(model):
            for number, arguments in enumerate(batches, 1):
                batch_call = _BatchCall(model, arguments, tokenizer)
                first_id = 0 if result is None else result.texts
                windows = [
                    TextWindow(first_id + row, CorpusText(f"batch {number}", row + 1, text_tokens.text), 0, text_tokens)
                    for row, text_tokens in enumerate(batch_call.texts)
                ]
                batch = Batch(windows, class_masks(batch_call.texts, options.custom_classes))
                result = merge_surveys(result, survey_of_batch(batch_call, batch, options))
                if result is not None and tokens is not None and result.tokens >= tokens:
                    break
        if result is None:
            raise AttnvizError("no batch to survey; give batches that hold texts")
        if tokenizer is not None and not decodes_exactly(tokenizer):
            known_words = [metric for metric in result.metrics if metric.name not in WORDING_METRICS]
            result = result.of_metrics(known_words)
    assert result is not None  # only processes after the first return nothing, and there are none
    return result


def _tuple(numbers: Sequence[int] | None) -> tuple[int, ...] | None:
    """Returns the numbers as a tuple; ``None`` for ``None``."""
    return None if numbers is None else tuple(numbers)


@final
class _BatchCall:
    """A module with the arguments of one call, which hold a batch of texts.

    Args:
        module: the module.
        arguments: the arguments of the call: a tensor, a tuple or a dictionary.
        tokenizer: the tokenizer that names the tokens; ``None`` names them by their ids.
    """

    def __init__(self, module: nn.Module, arguments: Any, tokenizer: Any) -> None:
        """Finds the ids in the arguments and sets ``texts`` to their tokens, without padding."""
        self.module, self.name, self.arguments = module, type(module).__name__, arguments
        self.device = next(module.parameters()).device
        named_arguments = arguments if isinstance(arguments, Mapping) else {}
        values = named_arguments.values() if named_arguments else _positional(arguments)
        ids = named_arguments.get(IDS, next(filter(_holds_ids, values), None))
        if not isinstance(ids, Tensor) or not _holds_ids(ids):
            raise AttnvizError("a batch holds no ids; give whole numbers of shape (texts, tokens)")
        is_token = np.ones(tuple(ids.shape), dtype=bool)
        mask = named_arguments.get(MASK)
        if isinstance(mask, Tensor) and mask.shape == ids.shape:
            is_token = mask.cpu().numpy() != 0
        lengths = is_token.sum(axis=1)
        # the tokens of each text must come first, and no text may be empty
        if (is_token != (np.arange(is_token.shape[1]) < lengths[:, None])).any() or not lengths.all():
            raise AttnvizError(
                "a batch has an empty text, or padding that is not at the ends of its texts; use padding_side='right'"
            )
        self.texts = [
            _tokens(row[:length], tokenizer) for row, length in zip(ids.cpu().numpy(), lengths.tolist(), strict=True)
        ]

    def inputs_of_batch(self, texts: Sequence[Tokens]) -> Any:
        """Returns the batch's arguments on the device of the module; ``texts`` is ignored."""
        if isinstance(self.arguments, Mapping):
            return {name: _on_device(value, self.device) for name, value in self.arguments.items()}
        return tuple(_on_device(value, self.device) for value in _positional(self.arguments))


def _positional(arguments: Any) -> Sequence[Any]:
    """Returns a tuple or list of arguments unchanged, and any other value as a tuple of one argument."""
    return arguments if isinstance(arguments, tuple | list) else (arguments,)


def _holds_ids(value: Any) -> bool:
    """True if a value is a tensor of whole numbers with two axes and at least one number, as ``(texts, tokens)``."""
    is_whole = isinstance(value, Tensor) and not value.is_floating_point() and not value.is_complex()
    return is_whole and value.ndim == 2 and value.dtype != torch.bool and value.numel() > 0


def _on_device(value: Any, device: torch.device) -> Any:
    """Returns a tensor on a device; any other value unchanged."""
    return value.to(device) if isinstance(value, Tensor) else value


def _tokens(ids: IntArray, tokenizer: Any) -> Tokens:
    if tokenizer is not None:
        return tokens_of_bare_ids(tokenizer, ids.tolist())
    labels = [f"#{number}" for number in ids]
    next_starts = np.cumsum([len(label) + 1 for label in labels]).tolist()  # a space follows each label
    offsets = [(start - len(label) - 1, start - 1) for label, start in zip(labels, next_starts, strict=True)]
    return tokens_of_pieces(" ".join(labels), ids.tolist(), labels, offsets, np.zeros(len(ids), dtype=bool))
