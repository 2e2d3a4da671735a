"""Reads texts with any torch module that takes token ids, and a tokenizer that makes them."""

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from attnviz.base.errors import AttnvizError, option
from attnviz.base.machine import is_out_of_memory
from attnviz.models.huggingface.tokens import MAX_CHARACTER_TOKENS, UNFINISHED, tokenize_text
from attnviz.models.reading.captured import error_line
from attnviz.models.reading.example import FoundToken, Use
from attnviz.models.reading.reader import FRAME_TEXT, Reader
from attnviz.models.reading.settings import ModelSettings
from attnviz.text.named_groups import with_own_words
from attnviz.text.piece_places import TextPiece, piece_places
from attnviz.text.selection import IMPLICIT, Selection
from attnviz.text.tokens import BYTE_BLANKS, Tokens, tokens_of_encoding, tokens_of_pieces, visible_label

if TYPE_CHECKING:
    import torch
    from torch import nn

    from attnviz.base.arrays import IntArray
    from attnviz.models.reading.example import Example, Prepared

ID_PARAMETERS = ("input_ids", "ids", "idx", "tokens")  # the first of them is given the ids, else the first parameter
SPECIAL_IDS = 16  # at most so many first ids of a small vocabulary stand for no text
# attributes of a module, or of its ``config``, that state the most tokens that it reads
LIMITS = ("max_position_embeddings", "n_positions", "n_ctx", "block_size", "context_length", "max_seq_len")


class OwnTextReader(Reader):
    """The reader of a module that is not one of transformers.

    Its tokenizer is one of transformers; or has ``encode``, or is called, with a text, and returns ids: a list, an
    array or a tensor, or a mapping that holds them. A module whose arguments have no name of this mapping takes it
    whole. If the tokenizer has ``decode``, which makes a text of ids, tokens are labelled by their texts.
    """

    def __init__(self, settings: ModelSettings, use: Use, module: "nn.Module", tokenizer: Any) -> None:
        super().__init__(settings, use=use)
        if tokenizer is None:
            raise AttnvizError(f"{settings.model} has no tokenizer, so it reads no text; give one beside the model")
        if settings.generate:
            raise AttnvizError(f"{option('generate')} needs a model of transformers; leave it out")
        if settings.attention not in (None, IMPLICIT):
            raise AttnvizError(
                f"{option('attention', settings.attention)} is a part of models of transformers; leave it out, or use "
                f"{option('attention', IMPLICIT)}"
            )
        self.own_module, self.tokenizer = module, tokenizer
        self._first_text = ""  # the first that was read
        self._measured_tokens = 0  # up to which number the limit was measured
        self._measured_limit: int | None = None

    @property
    def module(self) -> "nn.Module":
        """The module."""
        return self.own_module

    @cached_property
    def parameters(self) -> list[str]:
        """The names of the parameters of the module's forward pass."""
        return list(inspect.signature(self.module.forward).parameters)

    @cached_property
    def needed_parameters(self) -> list[str]:
        """The names of those without a default."""
        parameters = inspect.signature(self.module.forward).parameters.values()
        several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        return [
            each.name for each in parameters if each.default is inspect.Parameter.empty and each.kind not in several
        ]

    @property
    def takes_padding(self) -> bool:
        """True if the module has a mask that hides padding."""
        return "attention_mask" in self.parameters

    @cached_property
    def limit(self) -> int | None:
        """The most tokens that the module or its ``config`` states under a usual name; ``None`` if it states none."""
        limits = [
            owner.get(name) if isinstance(owner, Mapping) else getattr(owner, name, None)
            for owner in (getattr(self.module, "config", None), self.module)
            for name in LIMITS
        ]
        return min((limit for limit in limits if type(limit) is int and limit > 0), default=None)

    def limit_for(self, count: int) -> int | None:
        """Returns the stated limit, else measures whether the module fails on so many tokens, and on which it runs.

        It is measured on the processor alone: a row beyond a table's end would break the context of a GPU.
        """
        if self.limit is not None or count <= self._measured_tokens or self.device.type != "cpu":
            return self.limit or self._measured_limit
        self._measured_tokens = count
        if self._measured_limit is None and not self._runs_on([0] * count) and self._runs_on([0]):
            runs, fails = 1, count
            while fails - runs > 1:
                middle = (runs + fails) // 2
                runs, fails = (middle, fails) if self._runs_on([0] * middle) else (runs, middle)
            self._measured_limit = runs
        return self._measured_limit

    def _runs_on(self, ids: list[int]) -> bool:
        """True if the module reads these tokens, up to its first attention call."""
        import torch

        from attnviz.capture.capture_block import CaptureBlock
        from attnviz.capture.labels import CaptureOptions
        from attnviz.capture.model_calls import same_draws

        options = CaptureOptions(selection=Selection(layers=(0,)), stop=True, receive=lambda *call: None)
        inputs = self.inputs_of(self.tensor(np.array([ids])))
        try:
            with same_draws(), torch.no_grad(), CaptureBlock(self.module, options):
                self.module(**inputs)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            return False
        return True

    def ordinary_ids(self) -> "IntArray":
        """Returns every id of the embedding that reads the ids; it need not be the module's first."""
        from torch import nn

        ids, counts = [1, 0, 1], list[int]()

        def note(module: "nn.Module", inputs: tuple[Any, ...]) -> None:
            if inputs and inputs[0].flatten().tolist() == ids:
                counts.append(cast("nn.Embedding", module).num_embeddings)

        embeddings = [part for part in self.module.modules() if isinstance(part, nn.Embedding)]
        hooks = [part.register_forward_pre_hook(note) for part in embeddings]
        self._runs_on(ids)
        for hook in hooks:
            hook.remove()
        return np.arange(counts[0]) if counts else super().ordinary_ids()

    @cached_property
    def frame_text(self) -> str:
        """A short text that the tokenizer reads, or the first that it read: it may know the letters of DNA alone."""
        decode = getattr(self.tokenizer, "decode", None)
        tries: list[Callable[[], Any]] = [lambda: self._first_text or FRAME_TEXT]
        tries += [] if decode is None else [partial(decode, [number]) for number in range(SPECIAL_IDS)]
        errors = []
        for text_of in tries:
            try:
                text = str(text_of())
                ids = self._ids_of(self._encoded(text))
            except Exception as error:
                errors.append(error)
            else:
                if not set(ids) <= self.special_ids:
                    return text
        errors = errors or [ValueError("every text is special tokens alone")]
        raise AttnvizError(
            f"what {self.settings.model} returns beside the module fails on a text: {error_line(errors[0])}; "
            "return a tokenizer to read texts"
        ) from errors[0]

    def _encoded(self, text: str) -> Any:
        """Returns what the tokenizer makes of a text."""
        return getattr(self.tokenizer, "encode", self.tokenizer)(text)

    @cached_property
    def batch_name(self) -> str | None:
        """The name of the ids in the mapping that the module takes whole; ``None`` for a module that takes ids."""
        if hasattr(self.tokenizer, "convert_ids_to_tokens"):
            return None
        encoded = self._encoded(self.frame_text)
        if not hasattr(encoded, "keys") or not set(self.parameters).isdisjoint({*encoded.keys(), *ID_PARAMETERS}):
            return None
        return _name_of_ids(encoded)

    def tokenize(self, text: str) -> Tokens:
        """Splits a text with the tokenizer; tokens that it gives no text are labelled by their ids."""
        if hasattr(self.tokenizer, "convert_ids_to_tokens"):
            return tokenize_text(self.tokenizer, text)
        encoded = self._encoded(text)
        self._first_text = self._first_text or text
        if hasattr(encoded, "special_tokens_mask"):  # an encoding of the library tokenizers, which knows the places
            return with_own_words(tokens_of_encoding(text, encoded))
        ids = self._ids_of(encoded)
        decode = getattr(self.tokenizer, "decode", None)
        special = np.array([number in self.special_ids for number in ids])
        if decode is None:
            return with_own_words(tokens_of_pieces(text, ids, list(map(str, ids)), [(0, 0)] * len(ids), special))

        def decoded(start: int, stop: int) -> str:
            try:
                return str(decode(ids[start:stop]))
            except UnicodeDecodeError:  # bytes of no whole character
                return UNFINISHED

        names, counts = list[str](), list[int]()  # of ids, or of the fewest ids that make whole characters
        while (start := sum(counts)) < len(ids):
            for stop in range(start + 1, min(start + MAX_CHARACTER_TOKENS, len(ids)) + 1):
                name = decoded(start, stop)
                if UNFINISHED not in name:
                    break
            else:
                stop, name = start + 1, decoded(start, start + 1)
            names.append(name)
            counts.append(stop - start)
        is_special = special[np.cumsum([0, *counts[:-1]])]
        pieces = [TextPiece(*piece) for piece in zip(names, is_special.tolist(), strict=True)]
        folded = text.casefold()
        known_names = {name for name in set(names) if name.strip().casefold() in folded}
        ordinary_names = [piece.text for piece in pieces if not piece.is_optional]
        has_places = 2 * sum(name in known_names for name in ordinary_names) > len(ordinary_names)
        places = np.array(piece_places(text, pieces) if has_places else [(0, 0)] * len(pieces)).reshape(-1, 2)
        spans = [(begin, end) for begin, end in np.repeat(places, counts, axis=0).tolist()]
        names_of_ids = [name for name, count in zip(names, counts, strict=True) for _ in range(count)]
        return with_own_words(tokens_of_pieces(text, ids, names_of_ids, spans, special))

    @cached_property
    def special_ids(self) -> set[int]:
        """The ids around any text, such as that of its begin: those of no text; empty if it is not read."""
        with suppress(Exception):
            return set(self._ids_of(self._encoded("")))
        return set()

    def _ids_of(self, encoded: Any) -> list[int]:
        """Returns the ids in what a tokenizer made of one text."""
        if hasattr(encoded, "keys"):
            encoded = encoded[_name_of_ids(encoded)]
        ids = np.asarray(getattr(encoded, "ids", encoded)).squeeze()
        if ids.ndim > 1 or not ids.size or ids.dtype.kind not in "iu":
            raise AttnvizError(
                f"the tokenizer of {self.settings.model} returned {type(encoded).__name__} of the shape {ids.shape}; "
                "it should return the ids of a text, whole numbers of the shape (tokens,)"
            )
        return [int(number) for number in np.atleast_1d(ids)]

    def find_token(self, label: str, tokens: Tokens) -> FoundToken:
        """Returns the only token that the tokenizer makes of the label beside those around any text, else one of it."""
        encode, decode = getattr(self.tokenizer, "encode", None), getattr(self.tokenizer, "decode", None)
        if label in tokens.labels or encode is None or decode is None:
            return super().find_token(label, tokens)
        ids = list[int]()
        with suppress(Exception):  # of a tokenizer that does not know the label
            ids = [number for number in self._ids_of(encode(label)) if number not in self.special_ids]
        return FoundToken(ids[0], label) if len(ids) == 1 else super().find_token(label, tokens)

    def label_of(self, token_id: int, tokens: Tokens) -> str:
        """Returns the label of a token as the text has it, else the text that the tokenizer makes of its id."""
        label = super().label_of(token_id, tokens)
        decode = getattr(self.tokenizer, "decode", None)
        if decode is None or token_id in tokens.ids:
            return label
        try:
            written = str(decode([token_id]))
        except Exception:  # a vocabulary is often padded with ids that the tokenizer does not know
            written = ""
        for sign, blank in BYTE_BLANKS.items():  # of a tokenizer without a decoder
            written = blank + written.removeprefix(sign) if written.startswith(sign) else written
        return visible_label(written) if written else f"[{token_id}]"

    def read(self, example: "Example") -> "Prepared":
        """Returns a text as inputs of the module; implicit attention is recorded if the settings ask for it."""
        prepared = super().read(example)
        return replace(prepared, attention=IMPLICIT) if self.settings.attention == IMPLICIT else prepared

    def inputs_of(self, ids: "torch.Tensor", attention_mask: "torch.Tensor | None" = None) -> dict[str, Any]:
        """Returns the ids under the name of the module's parameter, with a mask and without a cache if it has such."""
        name = next((name for name in ID_PARAMETERS if name in self.parameters), self.parameters[0])
        if self.batch_name is not None:
            return {self.parameters[0]: {self.batch_name: ids}}
        inputs: dict[str, Any] = {name: ids}
        if "use_cache" in self.parameters:
            inputs["use_cache"] = False
        if attention_mask is None and "attention_mask" in self.needed_parameters:
            attention_mask = ids.new_ones(ids.shape)
        if attention_mask is not None and self.takes_padding:
            inputs["attention_mask"] = attention_mask
        unknown = [name for name in self.needed_parameters if name not in inputs]
        if unknown:
            raise AttnvizError(
                f"{self.name} takes {' and '.join(unknown)}, too, and gets token ids alone; give "
                f"{'it a default' if len(unknown) == 1 else 'them defaults'}"
            )
        return inputs


def _name_of_ids(encoded: Any) -> str:
    """Returns under which name of a mapping a tokenizer gives ids: a usual one, else the first."""
    names = [str(name) for name in encoded.keys()]  # noqa: SIM118
    return next((name for name in ID_PARAMETERS if name in names), names[0])
