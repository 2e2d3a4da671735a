"""The reader of Hugging Face transformers, from their own folder or the hub's cache."""

import inspect
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np

from attnviz.base.errors import AttnvizError, option
from attnviz.base.machine import lacks_memory
from attnviz.media.text import Text
from attnviz.models.huggingface.folder import describe_name, find_model, refuse_absent, refuse_missing_library
from attnviz.models.huggingface.loading import (
    load_model,
    load_tokenizer,
    position_limit,
    quiet_library,
    refusals,
    said_by,
    silenced,
    text_part,
)
from attnviz.models.reading.example import Example
from attnviz.models.reading.prepared import Prepared
from attnviz.models.reading.reader import Reader, Use
from attnviz.models.reading.settings import ModelSettings
from attnviz.text.selection import Selection

if TYPE_CHECKING:
    import torch
    from torch import nn
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from attnviz.base.arrays import IntArray
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
class HuggingFaceReader(Reader):
    """A pretrained transformer, run once as it is: encoder, decoder or encoder-decoder.

    Of an encoder-decoder, texts of a corpus are read by its encoder alone.

    Args:
        settings: the model's folder or name, and how it is run.
        built_in: see ``Reader``.
        use: see ``Reader``.
        loaded: a model and its tokenizer that are there already; ``None`` to read them from the folder.
    """

    reads = ("text", "pair", "context", "chat")

    def __init__(
        self,
        settings: ModelSettings,
        built_in: Sequence[str] = (),
        use: Use = "maps",
        loaded: "tuple[PreTrainedModel, PreTrainedTokenizerBase] | None" = None,
    ) -> None:
        super().__init__(settings, built_in, use)
        if loaded is not None:
            self.loaded = loaded

    @cached_property
    def folder(self) -> Path:
        """The model's folder, found where nothing has been imported for it yet."""
        folder = find_model(self.settings.model, self.built_in)
        if self.settings.device_map is not None:
            refuse_missing_library("accelerate")
        return folder

    @cached_property
    def loaded(self) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
        """Model and tokenizer, read once."""
        with self.running(), refusals(self.settings.model):
            predicts = self.use == "predictions"
            return load_model(self.folder, self.settings, predicts), load_tokenizer(self.folder)

    @property
    def whole(self) -> "PreTrainedModel":
        """The part of the model that reads text, whole.

        Raises:
            AttnvizError: if none does.
        """
        model = text_part(self.loaded[0])
        if model.main_input_name != "input_ids":
            raise AttnvizError(
                f"{self.settings.model} reads {model.main_input_name}, not text; in Python attnviz.record(model) "
                "records any input"
            )
        return model

    @property
    def module(self) -> "nn.Module":
        """The part of the model that reads text; of texts of a corpus its encoder where it has a decoder too."""
        encodes = self.use == "texts" and self.whole.config.is_encoder_decoder
        return self.whole.get_encoder() if encodes else self.whole

    @cached_property
    def name(self) -> str:
        """The name of its folder, or that on the hub."""
        return describe_name(self.settings.model)

    @cached_property
    def limit(self) -> int | None:
        """The most tokens that it has positions for."""
        return position_limit(self.whole)

    @cached_property
    def padding(self) -> int:
        """The number of the tokenizer's padding."""
        return self.loaded[1].pad_token_id or 0

    @cached_property
    def accepted(self) -> Mapping[str, inspect.Parameter]:
        """What the module can be called with, by name."""
        return inspect.signature(self.module.forward).parameters

    def running(self) -> AbstractContextManager[None]:
        """Within, the library writes no log."""
        return quiet_library(self.folder)

    def refuse_absent(self, selection: Selection) -> None:
        """Raises AttnvizError for a layer or head beyond all that the model's configuration counts."""
        refuse_absent(self.folder, selection)

    def tokenize(self, text: str) -> "Tokens":
        """The tokens of a text as the model's own tokenizer cuts it."""
        from attnviz.models.huggingface.tokens import tokenize_text

        return tokenize_text(self.loaded[1], text)

    def inputs_of(self, ids: "torch.Tensor", real: "torch.Tensor | None" = None) -> dict[str, Any]:
        """The arguments of the forward pass."""
        inputs: dict[str, Any] = {"input_ids": ids}
        if real is not None and "attention_mask" in self.accepted:
            inputs["attention_mask"] = real
        if "use_cache" in self.accepted:
            inputs["use_cache"] = False
        return inputs

    def read(self, example: Example) -> Prepared:
        """The example with the inputs of the forward pass.

        Raises:
            AttnvizError: if there is no such model, it cannot be loaded safely, or does not read such an example.
        """
        self.refuse_parts(example)
        with self.running(), refusals(self.settings.model):
            model, tokenizer = text_part(self.loaded[0]), self.loaded[1]
            with silenced():
                reading = self._read(self.loaded[0], tokenizer, example)
                if self.settings.truncate:
                    reading = truncated(reading, position_limit(model))
        self._refuse_unreadable(reading)
        return Prepared(
            self._inputs(reading),
            reading.tokens,
            reading.context,
            reading.attention,
            title=example.text,
            remarks=reading.remarks,
        )

    def read_windows(self, texts: Sequence[str], window: int | None) -> "list[list[Tokens]]":
        """The tokens of each text, in windows; of a tokenizer that makes none, whole or not at all."""
        from attnviz.models.huggingface.tokens import tokenize_windows
        from attnviz.models.reading.windows import windows_of

        if self.loaded[1].is_fast:
            return tokenize_windows(self.loaded[1], texts, window, self.limit)
        return [windows_of(self.tokenize(text), None, window or self.limit) for text in texts]

    def find_token(self, wanted: str, tokens: "Tokens") -> int:
        """The number of the token that is written so, with the space before a word where the tokenizer has one.

        Raises:
            AttnvizError: if that is several tokens, or none.
        """
        for written in (f" {wanted}", wanted):
            ids = self.loaded[1](written, add_special_tokens=False)["input_ids"]
            if len(ids) == 1:
                return int(ids[0])
        raise AttnvizError(f"{wanted!r} is no single token of the model")

    def ordinary_ids(self) -> "IntArray":
        """The numbers of all tokens that the model has vectors for and its tokenizer knows, but special ones."""
        table: Any = self.whole.get_input_embeddings()
        count = min(table.num_embeddings, len(self.loaded[1]))
        return np.setdiff1d(np.arange(count), self.loaded[1].all_special_ids)

    def doubts(self, tokens: "Tokens") -> tuple[str, ...]:
        """A sentence where much of the text is not in the vocabulary."""
        from attnviz.models.huggingface.tokens import unknown_remark

        with refusals(self.settings.model), silenced():  # of a tokenizer whose files are damaged
            return unknown_remark(self.loaded[1], tokens)

    def refuse_broken(self, inputs: dict[str, Any]) -> None:
        """Raises AttnvizError where the model cannot run on these inputs by itself: its files do not fit each other."""
        import torch

        try:
            with torch.inference_mode():
                self.module(**inputs)
        except Exception as error:
            if lacks_memory(error):
                raise
            raise AttnvizError(f"{self.settings.model!r} cannot run on this text: {said_by(error)}") from error

    def _inputs(self, reading: ModelInput) -> dict[str, Any]:
        """The arguments of the forward pass over one text."""
        read = reading.tokens if reading.context is None else reading.context
        inputs = self.inputs_of(self.tensor(read.ids[None]))
        if reading.context is not None:
            inputs["decoder_input_ids"] = self.tensor(reading.tokens.ids[None])
        if "token_type_ids" in self.accepted and reading.types is not None:
            inputs["token_type_ids"] = self.tensor(np.array([reading.types]))
        return inputs

    def _refuse_unreadable(self, reading: ModelInput) -> None:
        """Raises AttnvizError for a model that reads no text, or text longer than it can read."""
        rows, name = vocabulary_size(self.whole), self.settings.model
        for tokens in filter(None, (reading.tokens, reading.context)):
            if self.limit is not None and len(tokens) > self.limit:
                raise AttnvizError(
                    f"the text has {len(tokens)} tokens and {name} reads at most {self.limit}; "
                    f"{option('truncate', True)} cuts it"
                )
            largest = int(tokens.ids.max())
            if rows is not None and largest >= rows:
                raise AttnvizError(f"the tokenizer of {name} knows {largest}, its model only {rows} tokens")

    def _read(self, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", example: Example) -> ModelInput:
        from attnviz.models.huggingface.tokens import extended, token_types, tokenize_text

        settings = self.settings
        if model.config.is_encoder_decoder:
            return self._read_encoder_decoder(model, tokenizer, example)
        if settings.attention is not None or example.context is not None:
            given = option("attention" if settings.attention is not None else "context")
            raise AttnvizError(f"{given} chooses in an encoder-decoder; {settings.model} is none, so leave it out")
        text, pair, chat = example.text, example.pair, example.chat
        tokens = tokenize_text(tokenizer, text, pair, chat)
        if not settings.generate:
            return ModelInput(tokens, types=None if chat else token_types(tokenizer, text, pair))
        new = generate(model, tokens, settings.generate)
        remark = f"The last {len(new)} tokens were generated; attention is that of one pass over the whole."
        return ModelInput(extended(tokenizer, tokens, new), remarks=(remark,))

    def _read_encoder_decoder(
        self, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", example: Example
    ) -> ModelInput:
        """An encoder-decoder: its encoder reads the context where there is one, else the text."""
        from attnviz.models.huggingface.tokens import extended, shifted_right, tokenize_text

        settings = self.settings
        default: AttentionPart = "encoder" if example.context is None and not settings.generate else "cross"
        attention: AttentionPart = settings.attention or default  # type: ignore[assignment]
        read = example.text if example.context is None else example.context
        context = tokenize_text(tokenizer, read, example.pair, example.chat)
        start = getattr(model.config, "decoder_start_token_id", None) or 0
        if settings.generate:
            new = generate(model, context, settings.generate)
            empty = replace(context.first(0), media=(Text(),))
            return ModelInput(
                shifted_right(tokenizer, extended(tokenizer, empty, new[1:]), start), context, attention=attention
            )
        if example.context is None and attention != "encoder":
            raise AttnvizError(
                f"{option('attention', attention)} needs two texts: TEXT for the decoder and "
                f"{option('context', 'TEXT')} for the encoder, "
                f"or {option('generate', 20)} to let the decoder write its own"
            )
        tokens = shifted_right(tokenizer, tokenize_text(tokenizer, example.text, target=True), start)
        return ModelInput(tokens, context, attention=attention)


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
    import torch
    from transformers import GenerationConfig

    of_folder = getattr(model, "generation_config", None)
    kept = {name: getattr(of_folder, name, None) for name in KEPT_GENERATION_SETTINGS}
    model.generation_config = GenerationConfig(**kept)  # type: ignore[no-untyped-call]
    device = next(model.parameters()).device
    ids = torch.tensor(tokens.ids[None]).to("cpu" if device.type == "meta" else device)
    written = model.generate(
        input_ids=ids, attention_mask=ids.new_ones(ids.shape), max_new_tokens=count, do_sample=False, num_beams=1
    )  # type: ignore[operator]
    whole: list[int] = written[0].tolist()
    return whole if model.config.is_encoder_decoder else whole[len(tokens) :]


def vocabulary_size(model: "PreTrainedModel") -> int | None:
    """How many tokens the model has vectors for; ``None`` where it makes them of any character (CANINE)."""
    try:
        return len(model.get_input_embeddings().weight)  # type: ignore[arg-type]
    except NotImplementedError:
        return None
