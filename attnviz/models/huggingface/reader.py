"""Reads examples with Hugging Face transformers, from a folder or the hub's cache."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, final

import numpy as np

from attnviz.base.errors import AttnvizError, option, or_list
from attnviz.base.native_output import discard_output
from attnviz.media.text import Text
from attnviz.models.huggingface.folder import refuse_absent
from attnviz.models.huggingface.folder_reader import FolderReader
from attnviz.models.huggingface.loading import (
    load_model,
    load_tokenizer,
    position_limit,
    refusals,
    text_part,
)
from attnviz.models.reading.example import Example
from attnviz.models.reading.prepared import FoundToken, Prepared
from attnviz.text.selection import ATTENTION_PARTS, Selection
from attnviz.text.towers import TEXT_TOWER, TOWERS

if TYPE_CHECKING:
    import torch
    from torch import nn
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from attnviz.base.arrays import BoolArray, IntArray
    from attnviz.models.huggingface.replay import LogprobCheck
    from attnviz.text.selection import AttentionPart
    from attnviz.text.server_answer import ServerAnswer
    from attnviz.text.tokens import Tokens

MEDIA = {"image": "a picture", "video": "a video", "audio": "a sound"}
PLACEHOLDERS = tuple(
    f"{medium}_token_{end}" for medium in MEDIA for end in ("id", "index")
)  # settings of a configuration
KEPT_GENERATION_SETTINGS = (  # of a folder: where a text begins and ends, and tokens that it must not have
    *("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "forced_bos_token_id"),
    *("bad_words_ids", "suppress_tokens", "begin_suppress_tokens"),
)


@dataclass(frozen=True, eq=False)
class _ModelInput:
    """The tokens of an example as a model reads them.

    Attributes:
        tokens: the tokens of the queries; of an encoder-decoder, the tokens of its decoder.
        context: the tokens of an encoder-decoder's encoder; ``None`` for other models.
        types: token type ids, which number the texts of a pair; ``None`` if the tokenizer has none.
        attention: the kind of attention of an encoder-decoder to record; ``None`` for other models.
        remarks: remarks on the text, which are shown with its maps.
        check: see ``Prepared``.
        generated_ids: see ``Prepared``.
    """

    tokens: "Tokens"
    context: "Tokens | None" = None
    types: list[int] | None = None
    attention: "AttentionPart | None" = None
    remarks: tuple[str, ...] = ()
    check: "LogprobCheck | None" = None
    generated_ids: tuple[int, ...] = ()


@final
class HuggingFaceReader(FolderReader):
    """The reader of a pretrained transformer: encoder, decoder or encoder-decoder.

    Of an encoder-decoder, only the encoder reads the texts of a corpus.
    """

    reads = ("text", "pair", "context", "chat", "messages", "passages", "answer")

    @cached_property
    def loaded(self) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
        """Model and tokenizer, loaded once; with the language head if the model generates or is measured."""
        with self.running(), refusals(self.settings.model):
            predicts = self.use == "predictions"
            return load_model(self.folder, self.settings, predicts), load_tokenizer(self.folder)

    @property
    def text_model(self) -> "PreTrainedModel":
        """The part of the model that reads text, with encoder and decoder if it has both."""
        model = text_part(self.loaded[0])
        if model.main_input_name != "input_ids":
            raise AttnvizError(
                f"{self.settings.model} reads {model.main_input_name}, not text; give a picture with "
                f"{option('image', 'photo.jpg')} or a sound with {option('sound', 'speech.wav')}, or in Python record "
                "it with attnviz.record(model)"
            )
        return model

    @property
    def tower(self) -> str:
        """The tower for text if the model has one for pictures too; else ""."""
        return TEXT_TOWER if hasattr(self.loaded[0].config, "vision_config") else ""

    @property
    def module(self) -> "nn.Module":
        """The part of the model that reads text; for the texts of a corpus only the encoder of an encoder-decoder."""
        encodes = self.use == "texts" and self.text_model.config.is_encoder_decoder
        return self.text_model.get_encoder() if encodes else self.text_model

    @cached_property
    def limit(self) -> int | None:
        """The number of positions of the model; ``None`` for no limit."""
        return position_limit(self.text_model)

    @cached_property
    def padding_id(self) -> int:
        """The id of the tokenizer's padding token; 0 if it has none."""
        return self.loaded[1].pad_token_id or 0

    @cached_property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The parameters of the module by name."""
        return inspect.signature(self.module.forward).parameters

    def refuse_absent(self, selection: Selection) -> None:
        """Raises AttnvizError if a selected layer or head is beyond the largest count in the folder's configuration."""
        if not self.is_live:
            refuse_absent(self.folder, selection)

    def tokenize(self, text: str) -> "Tokens":
        """Splits a text with the model's tokenizer."""
        from attnviz.models.huggingface.tokens import tokenize_text

        return tokenize_text(self.loaded[1], text)

    def inputs_of(self, ids: "torch.Tensor", attention_mask: "torch.Tensor | None" = None) -> dict[str, Any]:
        """Returns the keyword arguments of the forward pass: ids, the mask if the module takes one, and no cache."""
        inputs: dict[str, Any] = {"input_ids": ids}
        if attention_mask is not None and "attention_mask" in self.parameters:
            inputs["attention_mask"] = attention_mask
        if "use_cache" in self.parameters:
            inputs["use_cache"] = False
        return inputs

    def inputs_without(self, tokens: "Tokens", hidden: "BoolArray") -> dict[str, Any]:
        """Returns the ids, a mask of the visible tokens, and the positions of all tokens if the module takes them."""
        if "attention_mask" not in self.parameters or self.text_model.config.is_encoder_decoder:
            return super().inputs_without(tokens, hidden)
        inputs = self.inputs_of(self.tensor(tokens.ids[None]), self.tensor((~hidden)[None].astype(np.int64)))
        if "position_ids" in self.parameters:
            inputs["position_ids"] = self.tensor(np.arange(len(tokens))[None])
        return inputs

    def read(self, example: Example) -> Prepared:
        """Prepares an example for the forward pass.

        Sets ``use`` to ``predictions`` for an answer with log-probabilities.
        """
        self.refuse_parts(example)
        if example.answer is not None and example.answer.logprobs is not None:
            self.use = "predictions"  # the log-probabilities are compared with those of the language head
        with self.running(), refusals(self.settings.model):
            model, tokenizer = text_part(self.loaded[0]), self.loaded[1]
            with discard_output():
                model_input = self._model_input(self.loaded[0], tokenizer, example)
                if self.settings.truncate:
                    model_input = _truncated_input(model_input, position_limit(model))
        self._refuse_unreadable(model_input, can_be_cut=example.answer is None)
        encoder_tokens = model_input.tokens if model_input.context is None else model_input.context
        inputs = self.inputs_of(self.tensor(encoder_tokens.ids[None]))
        if model_input.context is not None:
            inputs["decoder_input_ids"] = self.tensor(model_input.tokens.ids[None])
        if model_input.check is not None and "logits_to_keep" in self.parameters:
            inputs["logits_to_keep"] = model_input.check.kept_logits
        if "token_type_ids" in self.parameters and model_input.types is not None:
            inputs["token_type_ids"] = self.tensor(np.array([model_input.types]))
        return Prepared(
            inputs,
            model_input.tokens,
            model_input.context,
            model_input.attention,
            title=example.text if example.answer is None else model_input.tokens.text,
            remarks=model_input.remarks,
            check=model_input.check,
            generated_ids=model_input.generated_ids,
        )

    def read_windows(self, texts: Sequence[str], window: int | None) -> "list[list[Tokens]]":
        """Splits each text into windows of tokens.

        A slow tokenizer gives one window for each text, or none if the text has more tokens than allowed.
        """
        from attnviz.models.huggingface.tokens import tokenize_windows
        from attnviz.models.reading.windows import windows_of

        if self.loaded[1].is_fast:
            return tokenize_windows(self.loaded[1], texts, window, self.limit)
        return [windows_of(self.tokenize(text), None, window or self.limit) for text in texts]

    def find_token(self, label: str, tokens: "Tokens") -> FoundToken:
        """Returns a token of the vocabulary, as `single_token` finds it."""
        from attnviz.models.huggingface.tokens import single_token

        return single_token(self.loaded[1], label)

    def ordinary_ids(self) -> "IntArray":
        """Returns the ids that both embedding and tokenizer have, except special tokens."""
        table: Any = self.text_model.get_input_embeddings()
        count = min(table.num_embeddings, len(self.loaded[1]))
        return np.setdiff1d(np.arange(count), self.loaded[1].all_special_ids)

    def doubts(self, tokens: "Tokens") -> tuple[str, ...]:
        """Returns a remark if many tokens of the text are unknown to the tokenizer, else nothing."""
        from attnviz.models.huggingface.tokens import unknown_remark

        with refusals(self.settings.model), discard_output():  # a tokenizer with damaged files may fail only here
            return unknown_remark(self.loaded[1], tokens)

    def _refuse_unreadable(self, model_input: _ModelInput, can_be_cut: bool) -> None:
        """Raises AttnvizError if the text has too many tokens, a placeholder, or an id that the embedding lacks."""
        rows, name = vocabulary_size(self.text_model), self.settings.model
        for setting in PLACEHOLDERS:
            token_id = getattr(self.loaded[0].config, setting, None)
            if isinstance(token_id, int) and token_id in model_input.tokens.ids:
                label, medium = self.loaded[1].convert_ids_to_tokens(token_id), setting.partition("_")[0]
                advice = f"give one with {option('image', 'photo.jpg')}" if medium == "image" else "leave it out"
                raise AttnvizError(
                    f"the text has {label!r}, which stands for {MEDIA[medium]}, and none is given; {advice}, or in "
                    "Python attnviz.record(model) records any input"
                )
        for tokens in filter(None, (model_input.tokens, model_input.context)):
            self._refuse_long(tokens, can_be_cut and model_input.context is None and not self.settings.generate)
            max_id = int(tokens.ids.max())
            if rows is not None and max_id >= rows:
                raise AttnvizError(
                    f"the tokenizer of {name} gives the token id {max_id}, but the model has only {rows} tokens: they "
                    "do not belong together; copy both from one model"
                )

    def _refuse_long(self, tokens: "Tokens", can_be_cut: bool) -> None:
        """Raises AttnvizError if the text has more tokens than the model has positions."""
        if self.limit is not None and len(tokens) > self.limit:
            advice = f"cut it with {option('truncate', True)}" if can_be_cut else "use a shorter text"
            raise AttnvizError(
                f"the text has {len(tokens)} tokens, but {self.settings.model} reads at most {self.limit}; {advice}"
            )

    def _model_input(
        self, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", example: Example
    ) -> _ModelInput:
        """Returns the tokens of an example, followed by generated tokens if the settings ask for them."""
        from attnviz.models.huggingface.chat import tokenize_example, with_answer
        from attnviz.models.huggingface.tokens import token_types, with_generated

        settings = self.settings
        if example.answer is not None:
            return self._read_answer(tokenizer, example.answer)
        if model.config.is_encoder_decoder:
            return self._read_encoder_decoder(model, tokenizer, example)
        if settings.attention is not None or example.context is not None:
            name = option("attention" if settings.attention is not None else "context")
            if settings.attention in TOWERS:
                raise AttnvizError(f"{name} {settings.attention} needs a picture; add {option('image', 'photo.jpg')}")
            raise AttnvizError(f"{name} needs an encoder-decoder, which {settings.model} is not; leave it out")
        tokens, remarks = tokenize_example(tokenizer, example)
        if not settings.generate:
            types = token_types(tokenizer, example.text, example.pair) if example.conversation is None else None
            return _ModelInput(tokens, types=types, remarks=remarks)
        self._refuse_long(tokens, can_be_cut=False)
        new_ids = list(example.generated_ids) or generate(model, tokens, settings.generate)
        tokens_with_answer = with_answer(with_generated(tokenizer, tokens, new_ids), len(tokens), example)
        remark = (
            f"The last {len(new_ids)} tokens were generated; the attention is from one forward pass over all tokens."
        )
        return _ModelInput(tokens_with_answer, remarks=(remark, *remarks), generated_ids=tuple(new_ids))

    def _read_answer(self, tokenizer: "PreTrainedTokenizerBase", answer: "ServerAnswer") -> _ModelInput:
        """Returns the tokens of a server's answer, and the check of its log-probabilities if it has any."""
        from attnviz.models.huggingface.replay import LogprobCheck, answer_tokens, refuse_unknown_ids

        if self.text_model.config.is_encoder_decoder:
            raise AttnvizError(
                f"{self.settings.model} is an encoder-decoder, which cannot read a server's answer; give a decoder"
            )
        refuse_unknown_ids(answer, vocabulary_size(self.text_model), self.settings.model)
        check = None if answer.logprobs is None else LogprobCheck(answer, self.settings.model)
        return _ModelInput(answer_tokens(tokenizer, answer), remarks=answer.remarks, check=check)

    def _read_encoder_decoder(
        self, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", example: Example
    ) -> _ModelInput:
        """Returns the tokens for an encoder-decoder; the encoder reads the context if there is one, else the text."""
        from attnviz.models.huggingface.chat import tokenize_example
        from attnviz.models.huggingface.tokens import shifted_right, tokenize_text, with_generated

        settings = self.settings
        default_attention: AttentionPart = "encoder" if example.context is None and not settings.generate else "cross"
        if settings.attention in TOWERS:
            raise AttnvizError(
                f"{option('attention', settings.attention)} belongs to models that read pictures, and "
                f"{settings.model} is an encoder-decoder; choose {or_list(ATTENTION_PARTS)}"
            )
        attention: AttentionPart = settings.attention or default_attention  # type: ignore[assignment]
        encoder_example = example if example.context is None else replace(example, text=example.context)
        context, remarks = tokenize_example(tokenizer, encoder_example)
        start = getattr(model.config, "decoder_start_token_id", None) or 0
        if settings.generate:
            new_ids = generate(model, context, settings.generate)
            no_tokens = replace(context.first(0), media=(Text(),))
            generated_tokens = with_generated(tokenizer, no_tokens, new_ids[1:])  # without the start token
            return _ModelInput(
                shifted_right(tokenizer, generated_tokens, start),
                context,
                attention=attention,
                remarks=remarks,
            )
        if example.context is None and attention != "encoder":
            raise AttnvizError(
                f"{option('attention', attention)} needs two texts: TEXT for the decoder and "
                f"{option('context', 'TEXT')} for the encoder, "
                f"or {option('generate', 20)} to let the decoder write its text"
            )
        tokens = shifted_right(tokenizer, tokenize_text(tokenizer, example.text, target=True), start)
        return _ModelInput(tokens, context, attention=attention, remarks=remarks)


def _truncated_input(model_input: _ModelInput, limit: int | None) -> _ModelInput:
    """Returns the input cut to ``limit`` tokens, with a remark.

    Returns it unchanged if it fits, ``limit`` is ``None``, or it is for an encoder-decoder.
    """
    count = len(model_input.tokens)
    if limit is None or count <= limit or model_input.context is not None:
        return model_input
    tokens = model_input.tokens.shortened(limit)
    types = model_input.types
    if types is not None:
        types = [*types[: limit - 1], types[-1]]  # the type of the last token, [SEP], which `shortened` keeps
    remark = f"Truncated: {limit} of {count} tokens, the most that the model reads."
    return replace(model_input, tokens=tokens, types=types, remarks=(remark, *model_input.remarks))


def generate(model: "PreTrainedModel", tokens: "Tokens", count: int) -> list[int]:
    """Generates tokens greedily and returns their ids; for an encoder-decoder, also the start token's id.

    Changes ``model.generation_config``: it keeps only ``KEPT_GENERATION_SETTINGS``, because the others may ask for
    sampling, beams or penalties.
    """
    import torch
    from transformers import GenerationConfig

    folder_settings = getattr(model, "generation_config", None)
    settings = {name: getattr(folder_settings, name, None) for name in KEPT_GENERATION_SETTINGS}
    model.generation_config = GenerationConfig(**settings)  # type: ignore[no-untyped-call]
    device = next(model.parameters()).device
    ids = torch.tensor(tokens.ids[None]).to("cpu" if device.type == "meta" else device)
    output = model.generate(
        input_ids=ids, attention_mask=ids.new_ones(ids.shape), max_new_tokens=count, do_sample=False, num_beams=1
    )  # type: ignore[operator]
    generated_ids: list[int] = output[0].tolist()
    return generated_ids if model.config.is_encoder_decoder else generated_ids[len(tokens) :]


def vocabulary_size(model: "PreTrainedModel") -> int | None:
    """Returns the number of rows of the model's embedding; ``None`` if it embeds any character (CANINE)."""
    try:
        return len(model.get_input_embeddings().weight)  # type: ignore[arg-type]
    except NotImplementedError:
        return None
