"""The attention of a Hugging Face transformer over a text, from its own folder or the hub's cache."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from attnviz.base.errors import AttnvizError, option
from attnviz.base.machine import lacks_memory
from attnviz.media.text import Text
from attnviz.models.huggingface_folder import describe_name, find_model, refuse_absent, refuse_missing_library
from attnviz.models.huggingface_loading import (
    load_model,
    load_tokenizer,
    position_limit,
    quiet_library,
    refusals,
    said_by,
    silenced,
    text_part,
)
from attnviz.models.settings import ModelSettings
from attnviz.models.source import AbstractSource
from attnviz.text.selection import Selection
from attnviz.version import __version__

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from attnviz.maps.recording import Recording
    from attnviz.models.computation import Computation
    from attnviz.models.runnable import Runnable
    from attnviz.text.selection import AttentionPart
    from attnviz.text.tokens import Tokens

KEPT_GENERATION_SETTINGS = (  # of a folder's: where a text begins and ends, and what it never has; all else is greedy
    *("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "forced_bos_token_id"),
    *("bad_words_ids", "suppress_tokens", "begin_suppress_tokens"),
)


@dataclass(frozen=True, eq=False)
class ModelInput:
    """What a model reads.

    Attributes:
        tokens: of the text whose queries attend; of an encoder-decoder, what its decoder reads.
        context: what the encoder of an encoder-decoder reads; ``None`` for other models.
        types: which text of a pair each token is of, as the model numbers them; ``None`` where it does not.
        attention: which attention of an encoder-decoder is recorded; ``None`` for other models.
        remarks: what a reader of the maps must know about the text.
    """

    tokens: "Tokens"
    context: "Tokens | None" = None
    types: list[int] | None = None
    attention: "AttentionPart | None" = None
    remarks: tuple[str, ...] = ()


@final
class HuggingFaceSource(AbstractSource):
    """A pretrained transformer, run once as it is: encoder, decoder or encoder-decoder.

    Args:
        settings: the model's folder or name, and how it is run.
        built_in: see ``AbstractSource``.
    """

    def __init__(self, settings: ModelSettings, built_in: Sequence[str] = ()) -> None:
        super().__init__(settings, built_in)
        self.loaded: tuple[PreTrainedModel, PreTrainedTokenizerBase] | None = None

    def record(self, text: str, selection: Selection, values: bool = False) -> "Recording":
        """The recording of one text in one forward pass, which ends after the last chosen layer.

        Raises:
            AttnvizError: if there is no such model, it cannot be loaded safely, or it has no such layer or head.
        """
        folder = self._find()
        refuse_absent(folder, selection)
        import torch

        from attnviz.capture.listening import Listening
        from attnviz.capture.options import CaptureOptions
        from attnviz.maps.recording import Recording
        from attnviz.models.huggingface_tokens import unknown_remark

        with quiet_library(folder), torch.inference_mode():
            with refusals(self.settings.model):
                model, tokenizer = self._load(folder)
                inner = text_part(model)
                with silenced():
                    reading = self._read(model, tokenizer, text)
                    if self.settings.truncate:
                        reading = truncated(reading, position_limit(inner))
                    unknown = unknown_remark(tokenizer, reading.tokens)
            refuse_unreadable(inner, reading, self.settings.model)
            options = CaptureOptions(
                selection=selection,
                attention=reading.attention,
                tokens=reading.tokens,
                context=reading.context,
                stop=True,
                dense=self.settings.dense,
                values=values,
            )
            listening, inputs = Listening(inner, options), _inputs(inner, reading)
            try:
                with listening:
                    inner(**inputs)
            except AttnvizError:
                raise
            except Exception:
                refuse_broken(inner, inputs, self.settings.model)
                raise
        recorded = listening.recording()
        remarks = (*reading.remarks, *unknown, *recorded.remarks)
        settings = self.settings.as_json() | {"architecture": type(inner).__name__}
        return Recording(
            maps=recorded.maps,
            model=describe_name(self.settings.model),
            settings=settings,
            version=__version__,
            remarks=remarks,
        )

    def runnable(self, text: str | None) -> "Runnable":
        """The model, with its language head where it has one, and the tokens of a text.

        Raises:
            AttnvizError: if there is no such model, or it cannot be loaded safely.
        """
        from attnviz.models.runnable import Runnable

        if text is None:
            raise AttnvizError(f"{self.settings.model} needs a text; attnviz samples lists some")
        inner, tokenizer, reading = self._opened(self._find(), text, predicts=True)
        return Runnable(
            model=inner,
            inputs=_inputs(inner, reading),
            name=describe_name(self.settings.model),
            title=text,
            find_token=partial(_number_of, tokenizer),
            attention=reading.attention,
            remarks=reading.remarks,
            labels=reading.tokens.labels,
            context=() if reading.context is None else reading.context.labels,
        )

    def compute(self, text: str, layer: int) -> "Computation":
        """The numbers of one layer over one text, from queries and keys on, as the model itself had them.

        Raises:
            AttnvizError: if there is no such model or layer, or its attention is no single softmax of products.
        """
        folder = self._find()
        refuse_absent(folder, Selection(layers=(layer,)))
        from attnviz.models.huggingface_computation import computation_of

        inner, _, reading = self._opened(folder, text)
        inputs, name = _inputs(inner, reading), describe_name(self.settings.model)
        return computation_of(inner, inputs, layer, name, reading.tokens, reading.context, reading.attention)

    def _opened(
        self, folder: Path, text: str, predicts: bool = False
    ) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase, ModelInput]":
        """The part of the model that reads text, its tokenizer, and what it reads."""
        with quiet_library(folder), refusals(self.settings.model):
            model, tokenizer = self._load(folder, predicts)
            inner = text_part(model)
            with silenced():
                reading = self._read(model, tokenizer, text)
                if self.settings.truncate:
                    reading = truncated(reading, position_limit(inner))
        refuse_unreadable(inner, reading, self.settings.model)
        return inner, tokenizer, reading

    def _find(self) -> Path:
        """The model's folder, found where nothing has been imported for it yet."""
        folder = find_model(self.settings.model, self.built_in)
        if self.settings.device_map is not None:
            refuse_missing_library("accelerate")
        return folder

    def _load(self, folder: Path, predicts: bool = False) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
        """Model and tokenizer, read once."""
        if self.loaded is None:
            self.loaded = (load_model(folder, self.settings, predicts), load_tokenizer(folder))
        return self.loaded

    def _read(self, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", text: str) -> ModelInput:
        from attnviz.models.huggingface_tokens import extended, token_types, tokenize_text

        settings = self.settings
        if model.config.is_encoder_decoder:
            return self._read_encoder_decoder(model, tokenizer, text)
        if settings.attention is not None or settings.context is not None:
            given = option("attention" if settings.attention is not None else "context")
            raise AttnvizError(f"{given} chooses in an encoder-decoder; {settings.model} is none, so leave it out")
        tokens = tokenize_text(tokenizer, text, settings.pair, settings.chat)
        if not settings.generate:
            return ModelInput(tokens, types=None if settings.chat else token_types(tokenizer, text, settings.pair))
        new = generate(model, tokens, settings.generate)
        remark = f"The last {len(new)} tokens were generated; attention is that of one pass over the whole."
        return ModelInput(extended(tokenizer, tokens, new), remarks=(remark,))

    def _read_encoder_decoder(
        self, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", text: str
    ) -> ModelInput:
        """An encoder-decoder: its encoder reads the context where there is one, else the text."""
        from attnviz.models.huggingface_tokens import extended, shifted_right, tokenize_text

        settings = self.settings
        default: AttentionPart = "encoder" if settings.context is None and not settings.generate else "cross"
        attention: AttentionPart = settings.attention or default  # type: ignore[assignment]
        read = text if settings.context is None else settings.context
        context = tokenize_text(tokenizer, read, settings.pair, settings.chat)
        start = getattr(model.config, "decoder_start_token_id", None) or 0
        if settings.generate:
            new = generate(model, context, settings.generate)
            empty = replace(context.first(0), media=(Text(),))
            return ModelInput(
                shifted_right(tokenizer, extended(tokenizer, empty, new[1:]), start), context, attention=attention
            )
        if settings.context is None and attention != "encoder":
            raise AttnvizError(
                f"{option('attention', attention)} needs two texts: TEXT for the decoder and "
                f"{option('context', 'TEXT')} for the encoder, "
                f"or {option('generate', 20)} to let the decoder write its own"
            )
        tokens = shifted_right(tokenizer, tokenize_text(tokenizer, text, target=True), start)
        return ModelInput(tokens, context, attention=attention)


def _number_of(tokenizer: "PreTrainedTokenizerBase", wanted: str) -> int:
    """The number of the token that is written so, with the space before a word where the tokenizer has one.

    Raises:
        AttnvizError: if that is several tokens, or none.
    """
    for written in (f" {wanted}", wanted):
        ids = tokenizer(written, add_special_tokens=False)["input_ids"]
        if len(ids) == 1:
            return int(ids[0])
    raise AttnvizError(f"{wanted!r} is no single token of the model")


def refuse_unreadable(model: "PreTrainedModel", reading: ModelInput, name: str) -> None:
    """Raises AttnvizError for a model that reads no text, or text longer than it can read."""
    if model.main_input_name != "input_ids":
        raise AttnvizError(
            f"{name} reads {model.main_input_name}, not text; in Python attnviz.record(model) records any input"
        )
    limit = position_limit(model)
    rows = vocabulary_size(model)
    for tokens in filter(None, (reading.tokens, reading.context)):
        if limit is not None and len(tokens) > limit:
            raise AttnvizError(
                f"the text has {len(tokens)} tokens and {name} reads at most {limit}; "
                f"{option('truncate', True)} cuts it"
            )
        if rows is not None and int(tokens.ids.max()) >= rows:
            raise AttnvizError(f"the tokenizer of {name} knows {int(tokens.ids.max())}, its model only {rows} tokens")


def refuse_broken(model: "PreTrainedModel", inputs: "dict[str, Any]", name: str) -> None:
    """Raises AttnvizError where the model cannot run on these inputs by itself: its files do not fit each other."""
    try:
        model(**inputs)
    except Exception as error:
        if lacks_memory(error):
            raise
        raise AttnvizError(f"{name!r} cannot run on this text: {said_by(error)}") from error


def truncated(reading: ModelInput, limit: int | None) -> ModelInput:
    """What is read, cut to as many tokens as the model has positions for, and said so."""
    count = len(reading.tokens)
    if limit is None or count <= limit or reading.context is not None:
        return reading
    tokens = reading.tokens.shortened(limit)
    types = None if reading.types is None else [*reading.types[: limit - 1], reading.types[-1]]
    remark = f"Truncated: {limit} of {count} tokens, as many as the model reads."
    return replace(reading, tokens=tokens, types=types, remarks=(remark, *reading.remarks))


def generate(model: "PreTrainedModel", tokens: "Tokens", count: int) -> list[int]:
    """The ids that the model writes next, the likeliest each time; of an encoder-decoder, its decoder's all.

    A folder's own settings may ask for samples, beams or penalties, which would not be the likeliest.
    """
    from transformers import GenerationConfig

    of_folder = getattr(model, "generation_config", None)
    kept = {name: getattr(of_folder, name, None) for name in KEPT_GENERATION_SETTINGS}
    model.generation_config = GenerationConfig(**kept)  # type: ignore[no-untyped-call]
    ids = _batch(tokens, model)
    written = model.generate(
        input_ids=ids, attention_mask=ids.new_ones(ids.shape), max_new_tokens=count, do_sample=False, num_beams=1
    )  # type: ignore[operator]
    whole: list[int] = written[0].tolist()
    return whole if model.config.is_encoder_decoder else whole[len(tokens) :]


def _inputs(model: "PreTrainedModel", reading: ModelInput) -> "dict[str, Any]":
    """The arguments of the forward pass."""
    accepted = inspect.signature(model.forward).parameters
    read = reading.tokens if reading.context is None else reading.context
    inputs: dict[str, Any] = {"input_ids": _batch(read, model)}
    if reading.context is not None:
        inputs["decoder_input_ids"] = _batch(reading.tokens, model)
    if "token_type_ids" in accepted and reading.types is not None:
        inputs["token_type_ids"] = _tensor(reading.types, model)
    if "use_cache" in accepted:
        inputs["use_cache"] = False
    return inputs


def _batch(tokens: "Tokens", model: "PreTrainedModel") -> "torch.Tensor":
    """The ids, ``(1, tokens)``."""
    return _tensor(tokens.ids.tolist(), model)


def _tensor(numbers: Any, model: "PreTrainedModel") -> "torch.Tensor":
    import torch

    device = next(model.parameters()).device  # meta where weights wait on disk; accelerate moves what they meet
    return torch.tensor(numbers)[None].to("cpu" if device.type == "meta" else device)


def vocabulary_size(model: "PreTrainedModel") -> int | None:
    """How many tokens the model has vectors for; ``None`` where it makes them of any character (CANINE)."""
    try:
        return len(model.get_input_embeddings().weight)  # type: ignore[arg-type]
    except NotImplementedError:
        return None
