"""The attention of a Hugging Face transformer over a text, from its own folder or the hub's cache."""

import inspect
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from attnviz.devices import find_device
from attnviz.errors import AttnvizError
from attnviz.source import AbstractSource, ModelSettings, refuse_ignored
from attnviz.source_huggingface_files import find_model, refuse_missing_library
from attnviz.version import __version__

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from attnviz.capture_sites import Attention
    from attnviz.maps import Recording
    from attnviz.selection import Selection
    from attnviz.tokens import Tokens

UNUSED = ("pooler", "lm_head", "classifier", "cls.")  # weights that come after all attention
POSITIONS = ("max_position_embeddings", "n_positions", "max_sequence_length")
LARGE = 500_000_000  # bytes of weights, from which on loading shows its progress


@dataclass(frozen=True, eq=False)
class Reading:
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
    attention: "Attention | None" = None
    remarks: tuple[str, ...] = ()


@final
class HuggingFaceSource(AbstractSource):
    """A pretrained transformer, run once as it is: encoder, decoder or encoder-decoder.

    Args:
        settings: the model's folder or name, and how it is run.

    Raises:
        AttnvizError: if there is no such model, or it cannot be loaded safely.
    """

    def __init__(self, settings: ModelSettings) -> None:
        self.settings = settings
        self.folder = find_model(settings.model)
        refuse_ignored(settings)
        if settings.device_map is not None:
            refuse_missing_library("accelerate")
        self.loaded: tuple[PreTrainedModel, PreTrainedTokenizerBase] | None = None

    def record(self, text: str, selection: "Selection") -> "Recording":
        """The recording of one text in one forward pass, which ends after the last chosen layer."""
        import torch

        from attnviz.capture import Capture
        from attnviz.maps import Recording
        from attnviz.source_huggingface_text import unknown_remark

        with quiet_library(self.folder), refusals(self.settings.model), torch.inference_mode():
            model, tokenizer = self._load()
            reading = self._read(model, tokenizer, text)
            inner = text_part(model)
            if self.settings.truncate:
                reading = truncated(reading, position_limit(inner))
            refuse_unreadable(inner, reading, self.settings.model)
            capture = Capture(
                inner,
                selection,
                attention=reading.attention,
                tokens=reading.tokens,
                context=reading.context,
                stop=True,
                dense=self.settings.dense,
            )
            with capture.listening():
                inner(**_inputs(inner, reading))
        recorded = capture.recording()
        remarks = (*reading.remarks, *unknown_remark(tokenizer, reading.tokens), *recorded.remarks)
        settings = self.settings.as_json() | {"architecture": type(inner).__name__}
        return Recording(
            maps=recorded.maps, model=self._name(), settings=settings, version=__version__, remarks=remarks
        )

    def _name(self) -> str:
        return Path(self.settings.model).name if Path(self.settings.model).is_dir() else self.settings.model

    def _load(self) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
        """Model and tokenizer, read once."""
        if self.loaded is None:
            self.loaded = (load_model(self.folder, self.settings), load_tokenizer(self.folder))
        return self.loaded

    def _read(self, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", text: str) -> Reading:
        from attnviz.source_huggingface_text import extended, token_types, tokenize_text

        settings = self.settings
        if model.config.is_encoder_decoder:
            return self._read_both(model, tokenizer, text)
        if settings.attention is not None or settings.context is not None:
            given = "--attention" if settings.attention is not None else "--context"
            raise AttnvizError(f"{given} chooses in an encoder-decoder; {settings.model} is none, so leave it out")
        tokens = tokenize_text(tokenizer, text, settings.pair, settings.chat)
        if not settings.generate:
            return Reading(tokens, types=None if settings.chat else token_types(tokenizer, text, settings.pair))
        new = generate(model, tokens, settings.generate)
        remark = f"The last {len(new)} tokens were generated; attention is that of one pass over the whole."
        return Reading(extended(tokenizer, tokens, new), remarks=(remark,))

    def _read_both(self, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", text: str) -> Reading:
        """An encoder-decoder: its encoder reads the context where there is one, else the text."""
        from attnviz.source_huggingface_text import extended, shifted_right, tokenize_text

        settings = self.settings
        default: Attention = "encoder" if settings.context is None and not settings.generate else "cross"
        attention: Attention = settings.attention or default  # type: ignore[assignment]
        read = text if settings.context is None else settings.context
        context = tokenize_text(tokenizer, read, settings.pair, settings.chat)
        start = getattr(model.config, "decoder_start_token_id", None) or 0
        if settings.generate:
            new = generate(model, context, settings.generate)
            empty = context.first(0)
            return Reading(
                shifted_right(tokenizer, extended(tokenizer, empty, new[1:]), start), context, attention=attention
            )
        if settings.context is None and attention != "encoder":
            raise AttnvizError(
                f"--attention {attention} needs two texts: TEXT for the decoder and --context TEXT for the encoder, "
                "or --generate 20 to let the decoder write its own"
            )
        tokens = shifted_right(tokenizer, tokenize_text(tokenizer, text), start)
        return Reading(tokens, context, attention=attention)


def load_tokenizer(folder: Path) -> "PreTrainedTokenizerBase":
    """The model's own tokenizer, without running code of the folder."""
    from transformers import AutoTokenizer

    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
        str(folder), local_files_only=True, trust_remote_code=False
    )
    return tokenizer


def load_model(folder: Path, settings: ModelSettings) -> "PreTrainedModel":
    """The model with all the weights that its attention needs, in evaluation mode on its device.

    Raises:
        AttnvizError: if a weight is not in the file: it would be random.
    """
    import torch
    import transformers

    config = transformers.AutoConfig.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    kind: Any = transformers.AutoModel
    if settings.generate:
        kind = transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModelForCausalLM
    options = {} if settings.device_map is None else {"device_map": settings.device_map}
    model, report = kind.from_pretrained(
        str(folder),
        config=config,
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
        dtype=getattr(torch, settings.dtype),
        output_loading_info=True,
        **options,
    )
    refuse_random(settings.model, report)
    if settings.device_map is None:
        model.to(find_device(settings.device))
    loaded: PreTrainedModel = model.eval()
    return loaded


def refuse_random(name: str, report: dict[str, Any]) -> None:
    """Raises AttnvizError where weights before any attention were not in the file, or have another shape there."""
    missing = sorted(str(key) for key in report.get("missing_keys", ()) if not any(part in str(key) for part in UNUSED))
    mismatched = sorted(str(key[0] if isinstance(key, tuple) else key) for key in report.get("mismatched_keys", ()))
    if missing or mismatched:
        first = (missing or mismatched)[0]
        count = len(missing) + len(mismatched)
        raise AttnvizError(
            f"{count} weights of {name!r} are not in its file (such as {first}): they would be random; "
            "a folder with all weights works"
        )


def text_part(model: "PreTrainedModel") -> "PreTrainedModel":
    """The part of a model that reads text: itself, or one of its towers."""
    tower: PreTrainedModel | None = getattr(model, "text_model", None)
    return model if tower is None else tower


def refuse_unreadable(model: "PreTrainedModel", reading: Reading, name: str) -> None:
    """Raises AttnvizError for a model that reads no text, or text longer than it can read."""
    if model.main_input_name != "input_ids":
        raise AttnvizError(
            f"{name} reads {model.main_input_name}, not text; in Python attnviz.record(model) records any input"
        )
    limit = position_limit(model)
    rows = len(_embedding(model))
    for tokens in filter(None, (reading.tokens, reading.context)):
        if limit is not None and len(tokens) > limit:
            raise AttnvizError(
                f"the text has {len(tokens)} tokens and {name} reads at most {limit}; --truncate cuts it"
            )
        if int(tokens.ids.max()) >= rows:
            raise AttnvizError(f"the tokenizer of {name} knows {int(tokens.ids.max())}, its model only {rows} tokens")


def truncated(reading: Reading, limit: int | None) -> Reading:
    """What is read, cut to as many tokens as the model has positions for, and said so."""
    count = len(reading.tokens)
    if limit is None or count <= limit or reading.context is not None:
        return reading
    tokens = reading.tokens.shortened(limit)
    types = None if reading.types is None else [*reading.types[: limit - 1], reading.types[-1]]
    remark = f"Truncated: {limit} of {count} tokens, as many as the model reads."
    return replace(reading, tokens=tokens, types=types, remarks=(remark, *reading.remarks))


def position_limit(model: "PreTrainedModel") -> int | None:
    """The most tokens that the model has positions for, or ``None`` where it has no limit."""
    config = model.config.get_text_config()
    limits = [getattr(config, name, None) for name in POSITIONS]
    known = [limit for limit in limits if isinstance(limit, int) and limit > 0]
    if not known:
        return None
    counted_from_padding = any(
        name.endswith("position_embeddings") and getattr(part, "padding_idx", None) is not None
        for name, part in model.named_modules()
    )
    return min(known) - ((config.pad_token_id or 0) + 1 if counted_from_padding else 0)


def generate(model: "PreTrainedModel", tokens: "Tokens", count: int) -> list[int]:
    """The ids that the model writes next, the likeliest each time; of an encoder-decoder, its decoder's all."""
    ids = _batch(tokens, model)
    written = model.generate(
        input_ids=ids, attention_mask=ids.new_ones(ids.shape), max_new_tokens=count, do_sample=False
    )  # type: ignore[operator]
    whole: list[int] = written[0].tolist()
    return whole if model.config.is_encoder_decoder else whole[len(tokens) :]


def _inputs(model: "PreTrainedModel", reading: Reading) -> "dict[str, Any]":
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

    return torch.tensor(numbers)[None].to(_embedding(model).device)


def _embedding(model: "PreTrainedModel") -> "torch.Tensor":
    """The vectors of the vocabulary, ``(tokens, features)``."""
    weight: torch.Tensor = model.get_input_embeddings().weight  # type: ignore[assignment]
    return weight


@contextmanager
def quiet_library(folder: Path) -> Iterator[None]:
    """transformers without its log and, where loading is quick, without its progress bar; both as before after it."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from transformers.utils import logging as library

    logging: Any = library
    level, shown = logging.get_verbosity(), logging.is_progress_bar_enabled()
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    logging.set_verbosity(logging.CRITICAL)
    if not (sys.stderr.isatty() and size > LARGE):
        logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()


@contextmanager
def refusals(name: str) -> Iterator[None]:
    """Turns what transformers says of a model that it cannot load into one line."""
    from safetensors import SafetensorError

    try:
        yield
    except AttnvizError:
        raise
    except SafetensorError as error:
        raise AttnvizError(f"the weights of {name!r} are cut off or damaged: {error}") from error
    except (OSError, ValueError, ImportError) as error:
        message = str(error)
        if "trust_remote_code" in message or "custom code" in message:
            raise AttnvizError(
                f"{name!r} needs code of its own, which attnviz does not run; in Python, load it yourself and use "
                "attnviz.record(model)"
            ) from error
        if "from_pretrained" in "".join(str(frame) for frame in _frames(error)) or "model type" in message:
            raise AttnvizError(f"cannot load {name!r}: {message.strip().splitlines()[0]}") from error
        raise


def _frames(error: BaseException) -> Iterator[str]:
    """The names of the functions that the error came through."""
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame.f_code.co_name
        trace = trace.tb_next
