"""Reads texts with Hugging Face transformers, from a folder or the hub's cache; media readers share its base."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn, final

import numpy as np

from attnviz.base.errors import AttnvizError, option, or_list
from attnviz.base.printable import discard_output
from attnviz.base.progress import working
from attnviz.models.huggingface.adapter import split_adapter
from attnviz.models.huggingface.folder import (
    check_folder,
    describe_name,
    find_model,
    known_counts,
    refuse_missing_library,
)
from attnviz.models.huggingface.gguf_file import quick_gguf, read_gguf
from attnviz.models.huggingface.loading import (
    load_model,
    load_tokenizer,
    position_limit,
    quiet_library,
    refusals,
    text_part,
)
from attnviz.models.reading.example import Example, FoundToken, Prepared, Use
from attnviz.models.reading.reader import Reader
from attnviz.models.reading.settings import ModelSettings
from attnviz.text.head_name import TEXT_TOWER, TOWERS
from attnviz.text.selection import ATTENTION_PARTS, IMPLICIT

if TYPE_CHECKING:
    import torch
    from torch import nn
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from attnviz.base.arrays import BoolArray, IntArray
    from attnviz.models.huggingface.replay import LogprobCheck
    from attnviz.text.selection import AttentionPart, RecordedAttention
    from attnviz.text.tokens import Tokens

FLOATS = ("F", "BF")  # the begin of the names of types of GGUF files that round nothing
MEDIA = {"image": "a picture", "video": "a video", "audio": "a sound"}
PLACEHOLDERS = tuple(
    f"{medium}_token_{end}" for medium in MEDIA for end in ("id", "index")
)  # settings of a configuration
KEPT_GENERATION_SETTINGS = (  # of a folder: where a text begins and ends, and tokens that it must not have
    *("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "forced_bos_token_id"),
    *("bad_words_ids", "suppress_tokens", "begin_suppress_tokens"),
)


class FolderReader(Reader):
    """A reader of a model in a folder, in the hub's cache, or that the caller has loaded.

    Attributes:
        is_live: true if the caller has loaded the model, so that there is no folder.
    """

    noun: ClassVar[str] = "text"  # what the model reads, in the message if it fails

    def __init__(
        self, settings: ModelSettings, built_in: Sequence[str] = (), use: Use = "maps", loaded: Any = None
    ) -> None:
        super().__init__(settings, built_in, use)
        self.is_live = loaded is not None
        if self.is_live:
            vars(self)["loaded"] = loaded  # in place of the cached property that subclasses define

    @cached_property
    def folder(self) -> Path:
        """The folder of a model that reads what this reader reads."""
        images, sounds = not {"image", "images"}.isdisjoint(self.reads), "sound" in self.reads
        base, _ = split_adapter(self.settings.model)
        folder = find_model(base, self.built_in, images, sounds)
        if images and "text" in self.reads:
            check_folder(folder, base)
        if self.settings.device_map is not None:
            refuse_missing_library("accelerate")
        return folder

    @cached_property
    def name(self) -> str:
        """The name of the model's folder, or its name on the hub."""
        base, adapter = split_adapter(self.settings.model)
        return describe_name(base if adapter is None else str(adapter))

    def running(self) -> AbstractContextManager[None]:
        """Returns the context in which transformers writes no log."""
        return quiet_library(None if self.is_live else self.folder)

    @property
    def failure(self) -> str:
        """The begin of the refusal of an example on which the model fails, such as when its files do not match."""
        return f"{self.settings.model!r} cannot run on this {self.noun}"

    @contextmanager
    def reading(self, task: str) -> Iterator[None]:
        """Runs the block silently, and refuses in one line what a library fails at; ``task`` begins the refusal."""
        with self.running(), refusals(self.settings.model, task), working(f"reading the {self.noun}"), discard_output():
            yield


class MediaReader(FolderReader):
    """A reader of pictures or sounds, which reads no text without them."""

    # the option that gives what the model reads, and an example of it
    medium: ClassVar[tuple[str, str]] = ("image", "photo.jpg")

    def tokenize(self, text: str) -> NoReturn:
        """Raises AttnvizError: the model reads no text alone."""
        raise AttnvizError(f"{self.settings.model} reads no text alone; give it {option(*self.medium)}")

    def inputs_of(self, ids: "torch.Tensor", attention_mask: "torch.Tensor | None" = None) -> NoReturn:
        """Raises AttnvizError: the model reads more than token ids."""
        raise AttnvizError(f"{self.settings.model} reads no token ids alone; give it {option(*self.medium)}")


@final
class HuggingFaceReader(FolderReader):
    """The reader of a pretrained transformer: encoder, decoder or encoder-decoder.

    Of an encoder-decoder, only the encoder reads the texts of a corpus.
    """

    reads = ("text", "pair", "context", "chat", "messages", "passages", "answer")

    @cached_property
    def loaded(self) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
        """Model and tokenizer, loaded once; with the language head if the model generates or is measured."""
        quickly = quick_gguf() if self.folder.is_file() else nullcontext()
        with self.running(), refusals(self.settings.model), quickly:
            return load_model(self.folder, self.settings, self.use), load_tokenizer(self.folder)

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
    def module(self) -> "nn.Module":
        """The part of the model that reads text; for the texts of a corpus only the encoder of an encoder-decoder."""
        encodes = self.use == "texts" and self.text_model.config.is_encoder_decoder
        return self.text_model.get_encoder() if encodes else self.text_model

    @property
    def tower(self) -> str:
        """The tower for text if the model has one for pictures too; else ""."""
        return TEXT_TOWER if hasattr(self.loaded[0].config, "vision_config") else ""

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

    @property
    def known_counts(self) -> tuple[int | None, int | None]:
        """The largest numbers of layers and heads in the folder's configuration, if there is a folder."""
        return (None, None) if self.is_live else known_counts(self.folder)

    # An example becomes the inputs of the model.

    def read(self, example: Example) -> Prepared:
        """Prepares an example for the forward pass."""
        self.refuse_parts(example)
        with self.running(), refusals(self.settings.model):
            model, tokenizer = text_part(self.loaded[0]), self.loaded[1]
            with working("reading the text"), discard_output():
                text = self._tokenized(self.loaded[0], tokenizer, example)
                limit, count = position_limit(model), len(text.tokens)
                if self.settings.truncate and limit is not None and count > limit and text.context is None:
                    remark = f"Truncated: {limit} of {count} tokens, the most that the model reads."
                    text = text._replace(tokens=text.tokens.shortened(limit), remarks=(remark, *text.remarks))
                    if text.types is not None:  # the last is of [SEP], which `shortened` keeps
                        text = text._replace(types=[*text.types[: limit - 1], text.types[-1]])
        self._refuse_unreadable(text, can_be_cut=example.answer is None)
        inputs = self.inputs_of(self.tensor((text.tokens if text.context is None else text.context).ids[None]))
        if text.context is not None:
            inputs["decoder_input_ids"] = self.tensor(text.tokens.ids[None])
        if text.check is not None and "logits_to_keep" in self.parameters:
            inputs["logits_to_keep"] = text.check.kept_logits
        if text.types is not None and "token_type_ids" in self.parameters:
            inputs["token_type_ids"] = self.tensor(np.array([text.types]))
        return Prepared(
            inputs,
            text.tokens,
            text.context,
            text.attention,
            title=example.text if example.answer is None else text.tokens.text,
            remarks=(*self.origins, *text.remarks),
            check=text.check,
            generated_ids=text.generated_ids,
        )

    def _tokenized(
        self, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", example: Example
    ) -> "_TokenizedExample":
        """Returns the tokens of an example, then generated ones if the settings ask."""
        from attnviz.models.huggingface.chat import tokenize_example, with_answer
        from attnviz.models.huggingface.tokens import token_types, with_generated

        settings = self.settings
        if example.answer is not None:
            from attnviz.models.huggingface.replay import LogprobCheck, answer_tokens, refuse_unknown_ids

            if self.text_model.config.is_encoder_decoder:
                raise AttnvizError(
                    f"{self.settings.model} is an encoder-decoder, which cannot read token ids alone; give its text"
                )
            refuse_unknown_ids(example.answer, _vocabulary_size(self.text_model), self.settings.model)
            tokens = answer_tokens(tokenizer, example.answer)
            if example.answer.logprobs is None:
                return _TokenizedExample(tokens, remarks=example.answer.remarks)
            check = LogprobCheck(example.answer, self.settings.model)
            return _TokenizedExample(tokens, remarks=example.answer.remarks, check=check)
        if model.config.is_encoder_decoder:
            return self._read_encoder_decoder(model, tokenizer, example)
        is_implicit = settings.attention == IMPLICIT and example.context is None
        if not is_implicit and (settings.attention is not None or example.context is not None):
            name = option("attention" if settings.attention is not None else "context")
            if settings.attention in TOWERS:
                raise AttnvizError(f"{name} {settings.attention} needs a picture; add {option('image', 'photo.jpg')}")
            raise AttnvizError(f"{name} needs an encoder-decoder, which {settings.model} is not; leave it out")
        attention = IMPLICIT if is_implicit else None
        tokens, remarks = tokenize_example(tokenizer, example)
        if not settings.generate:
            types = token_types(tokenizer, example.text, example.pair) if example.conversation is None else None
            return _TokenizedExample(tokens, attention=attention, remarks=remarks, types=types)
        self._refuse_long(tokens, can_be_cut=False)
        new_ids = list(example.generated_ids) or generate(model, tokens, settings.generate)
        tokens_with_answer = with_answer(with_generated(tokenizer, tokens, new_ids), len(tokens), example)
        remark = (
            f"The last {len(new_ids)} tokens were generated; the attention is from one forward pass over all tokens."
        )
        return _TokenizedExample(
            tokens_with_answer, attention=attention, remarks=(remark, *remarks), generated_ids=tuple(new_ids)
        )

    def _read_encoder_decoder(
        self, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", example: Example
    ) -> "_TokenizedExample":
        """Returns the tokens for an encoder-decoder; the encoder reads the context if there is one, else the text."""
        from attnviz.models.huggingface.chat import tokenize_example
        from attnviz.models.huggingface.tokens import shifted_right, tokenize_text, written_tokens

        settings = self.settings
        default_attention: AttentionPart = "encoder" if example.context is None and not settings.generate else "cross"
        if settings.attention in TOWERS:
            raise AttnvizError(
                f"{option('attention', settings.attention)} belongs to models that read pictures, and "
                f"{settings.model} is an encoder-decoder; choose {or_list(ATTENTION_PARTS)}"
            )
        if settings.attention == IMPLICIT:
            raise AttnvizError(
                f"{option('attention', IMPLICIT)} is of linear layers, which the encoder-decoder {settings.model} has "
                f"not; choose {or_list(ATTENTION_PARTS)}"
            )
        attention: AttentionPart = settings.attention or default_attention  # type: ignore[assignment]
        encoder_example = example if example.context is None else replace(example, text=example.context)
        context, remarks = tokenize_example(tokenizer, encoder_example)
        start = getattr(model.config, "decoder_start_token_id", None) or 0
        if settings.generate:
            new_ids = generate(model, context, settings.generate)
            tokens = shifted_right(tokenizer, written_tokens(tokenizer, new_ids), start)
            return _TokenizedExample(tokens, context, attention, remarks)
        if example.context is None and attention != "encoder":
            raise AttnvizError(
                f"{option('attention', attention)} needs two texts: TEXT for the decoder and "
                f"{option('context', 'TEXT')} for the encoder, "
                f"or {option('generate', 20)} to let the decoder write its text"
            )
        tokens = shifted_right(tokenizer, tokenize_text(tokenizer, example.text, target=True), start)
        return _TokenizedExample(tokens, context, attention, remarks)

    def _refuse_unreadable(self, text: "_TokenizedExample", can_be_cut: bool) -> None:
        """Raises AttnvizError if the text has too many tokens, a placeholder, or an id that the embedding lacks."""
        rows, name = _vocabulary_size(self.text_model), self.settings.model
        for setting in PLACEHOLDERS:
            token_id = getattr(self.loaded[0].config, setting, None)
            if isinstance(token_id, int) and token_id in text.tokens.ids:
                label, medium = self.loaded[1].convert_ids_to_tokens(token_id), setting.partition("_")[0]
                advice = f"give one with {option('image', 'photo.jpg')}" if medium == "image" else "leave it out"
                raise AttnvizError(
                    f"the text has {label!r}, which stands for {MEDIA[medium]}, and none is given; {advice}, or in "
                    "Python attnviz.record(model) records any input"
                )
        for tokens in filter(None, (text.tokens, text.context)):
            self._refuse_long(tokens, can_be_cut and text.context is None and not self.settings.generate)
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

    @property
    def origins(self) -> tuple[str, ...]:
        """Remarks on weights that were dequantized or merged."""
        if self.is_live:
            return ()
        remarks = []
        types = () if self.folder.is_dir() else read_gguf(self.folder, self.settings.model).types
        if rounded := ", ".join(name for name in types if not name.startswith(FLOATS)):
            remarks.append(
                f"The file's weights are rounded ({rounded}); they were dequantized to {self.settings.dtype}."
            )
        base, adapter = split_adapter(self.settings.model)
        if adapter is not None:
            remarks.append(f"The adapter {self.name} was merged into {describe_name(base)}.")
        return tuple(remarks)

    def doubts(self, tokens: "Tokens") -> tuple[str, ...]:
        """Returns a remark if many tokens of the text are unknown to the tokenizer, else nothing."""
        from attnviz.models.huggingface.tokens import unknown_remark

        with refusals(self.settings.model), discard_output():  # a tokenizer with damaged files may fail only here
            return unknown_remark(self.loaded[1], tokens)

    # Texts and ids

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

    def hiding(self, prepared_input: Prepared) -> "Callable[[BoolArray], dict[str, Any]]":
        """Returns the function that adds a mask of tokens, and the positions of all tokens if the module takes them."""
        if "attention_mask" not in self.parameters or self.text_model.config.is_encoder_decoder:
            return super().hiding(prepared_input)
        inputs = dict(prepared_input.inputs)
        if "position_ids" in self.parameters:
            inputs["position_ids"] = self.tensor(np.arange(len(prepared_input.tokens))[None])
        return lambda hidden: inputs | {"attention_mask": self.tensor((~hidden)[None].astype(np.int64))}

    def read_windows(self, texts: Sequence[str], window: int | None) -> "list[list[Tokens]]":
        """Splits each text into windows of tokens.

        A slow tokenizer gives one window for each text, or none if the text has more tokens than allowed.
        """
        from attnviz.models.huggingface.tokens import tokenize_windows
        from attnviz.text.tokens import windows_of

        if self.loaded[1].is_fast:
            return tokenize_windows(self.loaded[1], texts, window, self.limit)
        return [windows_of(self.tokenize(text), None, window or self.limit) for text in texts]

    def find_token(self, label: str, tokens: "Tokens") -> FoundToken:
        """Returns a token of the vocabulary, as `single_token` finds it."""
        from attnviz.models.huggingface.tokens import single_token

        return single_token(self.loaded[1], label)

    def label_of(self, token_id: int, tokens: "Tokens") -> str:
        """Returns the label of a token of the vocabulary."""
        from attnviz.models.huggingface.tokens import vocabulary_label

        return vocabulary_label(self.loaded[1], token_id)

    def ordinary_ids(self) -> "IntArray":
        """Returns the ids that both embedding and tokenizer have, except special tokens."""
        table: Any = self.text_model.get_input_embeddings()
        count = min(table.num_embeddings, len(self.loaded[1]))
        return np.setdiff1d(np.arange(count), self.loaded[1].all_special_ids)


class _TokenizedExample(NamedTuple):
    """The tokens of an example, before they become tensors; the fields are those of `Prepared`."""

    tokens: "Tokens"
    context: "Tokens | None" = None
    attention: "RecordedAttention | None" = None
    remarks: tuple[str, ...] = ()
    types: list[int] | None = None  # of each token, the text of a pair that it belongs to; ``None`` if unknown
    check: "LogprobCheck | None" = None
    generated_ids: tuple[int, ...] = ()


def generate(model: "PreTrainedModel", tokens: "Tokens", count: int) -> list[int]:
    """Generates tokens greedily and returns their ids; for an encoder-decoder, also the start token's id."""
    import torch

    device = next(model.parameters()).device
    ids = torch.tensor(tokens.ids[None]).to("cpu" if device.type == "meta" else device)
    generated_ids = greedy_ids(model, {"input_ids": ids, "attention_mask": ids.new_ones(ids.shape)}, count)
    return generated_ids if model.config.is_encoder_decoder else generated_ids[len(tokens) :]


def greedy_ids(model: Any, inputs: Mapping[str, Any], count: int) -> list[int]:
    """Returns the ids that a model generates greedily, after those that it continues or the start token's.

    Drops the settings of its folder that may ask for sampling, beams or penalties; keeps the others.
    """
    from transformers import GenerationConfig

    folder_settings = getattr(model, "generation_config", None)
    settings = {name: getattr(folder_settings, name, None) for name in KEPT_GENERATION_SETTINGS}
    model.generation_config = GenerationConfig(**settings)  # type: ignore[no-untyped-call]
    ids: list[int] = model.generate(**inputs, max_new_tokens=count, do_sample=False, num_beams=1)[0].tolist()
    return ids


def _vocabulary_size(model: "PreTrainedModel") -> int | None:
    """Returns the number of rows of the model's embedding; ``None`` if it embeds any character (CANINE)."""
    try:
        return len(model.get_input_embeddings().weight)  # type: ignore[arg-type]
    except NotImplementedError:
        return None
