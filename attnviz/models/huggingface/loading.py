"""Loads a Hugging Face model and its tokenizer without log output or code from the folder, or refuses in one line."""

import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.base.errors import AttnvizError, option
from attnviz.base.machine import find_device, lacks_memory, refuse_without_room
from attnviz.models.reading.settings import ModelSettings

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

AFTER_ATTENTION = {"pooler", "lm_head", "classifier", "cls"}  # parts of a model that read what all its layers made
ATTENTION_PART = re.compile(r"attn|attention", re.IGNORECASE)  # in a weight's name: it decides where the model looks
POSITION_LIMITS = ("max_position_embeddings", "n_positions", "max_sequence_length")
MAX_GROWTH = 16  # of weights from their file to memory: numbers of 4 bits become float64
SPARE_BYTES = 2**28  # of what no file holds: tables that are computed, and what comes after the attention
PROGRESS_BYTES = 500_000_000  # of weights, from which loading shows its progress
PACKAGE = Path(__file__).parents[1]
MAX_ERROR_CHARACTERS = 300  # of what a library says of an error
PANIC = "PanicException"  # what tokenizers raises where its own code fails; no Exception


def load_tokenizer(folder: Path) -> "PreTrainedTokenizerBase":
    """The model's own tokenizer, without running code of the folder."""
    from transformers import AutoTokenizer

    with sealed(), silenced():
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False
        )
    return tokenizer


def load_model(folder: Path, settings: ModelSettings, predicts: bool = False) -> "PreTrainedModel":
    """The model with all the weights that its attention needs, in evaluation mode on its device.

    Raises:
        AttnvizError: if a weight is not in the file: it would be random.
    """
    import torch
    import transformers

    dtype = getattr(torch, settings.dtype)
    with sealed():
        config = transformers.AutoConfig.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
        kind: Any = transformers.AutoModel
        if settings.generate or (predicts and _predicts(config)):
            seq2seq = config.is_encoder_decoder
            kind = transformers.AutoModelForSeq2SeqLM if seq2seq else transformers.AutoModelForCausalLM
        refuse_oversized(folder, settings, kind, config)
        options = {} if settings.device_map is None else {"device_map": settings.device_map}
        model, report = kind.from_pretrained(
            str(folder),
            config=config,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            dtype=dtype,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are refused below, in one line
            **options,
        )
    refuse_random(settings, model, report)
    if settings.device_map is None:
        model.to(find_device(settings.device))
    loaded: PreTrainedModel = model.eval()
    return loaded


def _predicts(config: Any) -> bool:
    """Whether the model was saved with a head that predicts tokens."""
    heads = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
    return any(str(name).endswith(heads) for name in getattr(config, "architectures", None) or ())


def refuse_oversized(folder: Path, settings: ModelSettings, kind: Any, config: Any) -> None:
    """Raises AttnvizError where the configuration describes a model far larger than its weights, or than the memory.

    It is built without numbers for this, which takes a hundredth of the time of loading it. Else what no file holds
    would be allocated and drawn at random, before it can be refused.
    """
    import torch

    with torch.device("meta"):
        model = kind.from_config(config)
    numbers = sum(tensor.numel() for tensor in (*model.parameters(), *model.buffers()))
    needed = numbers * torch.empty(0, dtype=getattr(torch, settings.dtype)).element_size()
    held = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    if needed > MAX_GROWTH * held + SPARE_BYTES:
        raise AttnvizError(
            f"config.json of {settings.model!r} describes a model of {needed / 1e9:.1f} GB, and its weights are "
            f"{held / 1e9:.3f} GB: they do not belong together"
        )
    if settings.device_map is None:
        works = (
            f"{option('dtype', 'bfloat16')} takes half, {option('device_map', 'auto')} leaves on disk what does not fit"
        )
        refuse_without_room(needed, repr(settings.model), works)


@contextmanager
def silenced() -> Iterator[None]:
    """Within, nothing is printed: native code of libraries writes what it finds in a folder, whatever a terminal obeys.

    It is not Python's streams that are closed to it but what is behind them.
    """
    kept = []
    with suppress(OSError):
        for number in (1, 2):
            kept.append((os.dup(number), number))
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        for _, number in kept:
            os.dup2(nothing, number)
        yield
    finally:
        for copy, number in kept:
            os.dup2(copy, number)
            os.close(copy)
        os.close(nothing)


@contextmanager
def sealed() -> Iterator[None]:
    """Within, no pickle is opened and no network asked, whatever a folder has the libraries look for."""
    import pickle

    import torch
    from huggingface_hub import constants

    closed: list[tuple[Any, str, object]] = [(torch, "load", _refuse_pickle), (pickle, "load", _refuse_pickle)]
    closed += [(pickle, "loads", _refuse_pickle), (constants, "HF_HUB_OFFLINE", True)]
    before = [getattr(holder, name) for holder, name, _ in closed]
    try:
        for holder, name, value in closed:
            setattr(holder, name, value)
        yield
    finally:
        for (holder, name, _), value in zip(closed, before, strict=True):
            setattr(holder, name, value)


def _refuse_pickle(*_: object, **__: object) -> None:
    raise AttnvizError("the model's folder names a pickle, which can run code when opened; safetensors works")


def refuse_random(settings: ModelSettings, model: "PreTrainedModel", report: dict[str, Any]) -> None:
    """Raises AttnvizError where weights were not in the file, or have another shape there, and reach what is shown.

    Those after all attention reach no map, but a text that the model writes: its language head must be there whole.
    """
    mismatched = {str(key[0] if isinstance(key, tuple) else key) for key in report.get("mismatched_keys", ())}
    absent = {str(key) for key in report.get("missing_keys", ())} | mismatched
    random = sorted(key for key in absent if key in mismatched or not _is_known(model, key))
    headless = sorted(key for key in absent if "pooler" not in key.split("."))
    if settings.generate and headless and not random:
        raise AttnvizError(
            f"{settings.model!r} has no language head ({headless[0]} is not in its file), so that it cannot write; "
            f"leave {option('generate')} out"
        )
    if random:
        raise AttnvizError(
            f"{len(random)} weights of {settings.model!r} are not in its file (such as {random[0]}): "
            "they would be random; a folder with all weights works"
        )


def _is_known(model: "PreTrainedModel", key: str) -> bool:
    """Whether a weight that no file holds changes no attention, or is computed from a formula (sines of positions)."""
    owner = type(model.get_submodule(key.rpartition(".")[0])).__name__
    after = not AFTER_ATTENTION.isdisjoint(key.split(".")) and not ATTENTION_PART.search(key)
    return "Sinusoidal" in owner or after


def text_part(model: "PreTrainedModel") -> "PreTrainedModel":
    """The part of a model that reads text: itself, or one of its towers."""
    tower: PreTrainedModel | None = getattr(model, "text_model", None)
    return model if tower is None else tower


def position_limit(model: "PreTrainedModel") -> int | None:
    """The most tokens that the model has positions for, or ``None`` where it has no limit."""
    config = model.config.get_text_config()
    limits = [getattr(config, name, None) for name in POSITION_LIMITS]
    known = [limit for limit in limits if isinstance(limit, int) and limit > 0]
    if not known:
        return None
    counted_from_padding = any(
        name.endswith("position_embeddings") and getattr(part, "padding_idx", None) is not None
        for name, part in model.named_modules()
    )
    return min(known) - ((config.pad_token_id or 0) + 1 if counted_from_padding else 0)


@contextmanager
def quiet_library(folder: Path) -> Iterator[None]:
    """transformers without its log and, where loading is quick, without its progress bar; both as before after it."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from transformers.utils import logging as library

    logging: Any = library
    level, shown = logging.get_verbosity(), logging.is_progress_bar_enabled()
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    logging.set_verbosity(logging.CRITICAL)
    if not (sys.stderr.isatty() and size > PROGRESS_BYTES):
        logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"transformers|torch\.(nn|utils)")  # of models that are refused
            yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()


@contextmanager
def refusals(name: str) -> Iterator[None]:
    """Turns whatever the libraries raise about the files of a model into one line; an error of our own code passes."""
    from safetensors import SafetensorError

    try:
        yield
    except (AttnvizError, MemoryError):
        raise
    except SafetensorError as error:
        raise AttnvizError(f"the weights of {name!r} are cut off or damaged: {error}") from error
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != PANIC:
            raise
        message = str(error)
        if "trust_remote_code" in message or "custom code" in message:
            raise AttnvizError(
                f"{name!r} needs code of its own, which attnviz does not run; in Python, load it yourself and use "
                "attnviz.record(model)"
            ) from error
        if lacks_memory(error) or _is_ours(error):
            raise
        raise AttnvizError(f"cannot load {name!r}: {said_by(error)}") from error


def said_by(error: BaseException) -> str:
    """What an error of a library says, on one line, with its type where that is a word alone."""
    said = " ".join(str(error).split())
    shown = said if len(said) <= MAX_ERROR_CHARACTERS else f"{said[:MAX_ERROR_CHARACTERS]}…"
    return shown if " " in said else f"{type(error).__name__} {shown}".strip()


def _is_ours(error: BaseException) -> bool:
    """Whether the error was raised by a line of this package, and not by a library that the line called."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and Path(trace.tb_frame.f_code.co_filename).is_relative_to(PACKAGE)
