"""Loads a Hugging Face model and its tokenizer without log output and without running code from the folder."""

import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.base.errors import AttnvizError, option
from attnviz.base.machine import find_device, lacks_memory, refuse_without_memory
from attnviz.models.reading.settings import ModelSettings

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

AFTER_ATTENTION = {"pooler", "lm_head", "classifier", "cls"}  # modules after the last layer, which change no map
ATTENTION_PART = re.compile(r"attn|attention", re.IGNORECASE)  # in the name of a weight that may change maps
POSITION_LIMITS = ("max_position_embeddings", "n_positions", "max_sequence_length")
ATTENTION = "_attn_implementation_internal"  # of a configuration; the public name passes a value on to its parts
OWN_ATTENTION = ("eager", "sdpa", None)
MAX_GROWTH = 16  # of weights from their file to memory: numbers of 4 bits become float64
SPARE_BYTES = 2**28  # of what no file holds: tables that are computed, and what comes after the attention
PROGRESS_BYTES = 500_000_000  # of weights, from which loading shows its progress
PACKAGE = Path(__file__).parents[1]
MAX_ERROR_CHARACTERS = 300  # of a library's error in a message
PANIC = "PanicException"  # raised by tokenizers when its Rust code panics; not a subclass of Exception


def load_tokenizer(folder: Path) -> "PreTrainedTokenizerBase":
    """Loads the model's tokenizer without running code from the folder."""
    from transformers import AutoTokenizer

    with forbid_pickles_and_network(), discard_output():
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False
        )
    return tokenizer


def load_model(folder: Path, settings: ModelSettings, predicts: bool = False) -> "PreTrainedModel":
    """Loads the model with all weights that its attention needs, in evaluation mode on its device.

    Args:
        folder: the model's folder.
        settings: dtype, device and generation settings.
        predicts: if true, the model is loaded with its language head, if it has one.

    Raises:
        AttnvizError: if a weight is not in the file, so that it would be random.
    """
    import torch
    import transformers

    dtype = getattr(torch, settings.dtype)
    with forbid_pickles_and_network():
        config = transformers.AutoConfig.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
        use_own_attention(config)
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
            ignore_mismatched_sizes=True,  # refuse_random reports them in one line
            **options,
        )
    refuse_random(settings, model, report)
    if settings.device_map is None:
        model.to(find_device(settings.device))
    loaded: PreTrainedModel = model.eval()
    return loaded


def use_own_attention(config: Any) -> None:
    """Has a model and its parts run the attention of torch: any other name in a configuration chooses what is run.

    A name with a slash is a kernel of the hub, which is native code; flex_attention is compiled for minutes.
    """
    if getattr(config, ATTENTION, None) not in OWN_ATTENTION:
        setattr(config, ATTENTION, None)  # what the model has without a name, which is one of torch's
    for name in getattr(config, "sub_configs", None) or ():
        if (part := getattr(config, name, None)) is not None:
            use_own_attention(part)


def _predicts(config: Any) -> bool:
    """True if the model was saved with a head that predicts tokens."""
    heads = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
    return any(str(name).endswith(heads) for name in getattr(config, "architectures", None) or ())


def refuse_oversized(folder: Path, settings: ModelSettings, kind: Any, config: Any) -> None:
    """Raises AttnvizError if the configured model is far larger than its weight files, or than the memory.

    The model is built on the meta device for this, in a hundredth of the time of loading. Otherwise weights that no
    file holds would be allocated and drawn at random before they could be refused.

    Args:
        folder: the model's folder.
        settings: dtype and device settings.
        kind: the Auto class that builds the model.
        config: the model's configuration.
    """
    import torch

    with torch.device("meta"):
        model = kind.from_config(config)
    numbers = sum(tensor.numel() for tensor in (*model.parameters(), *model.buffers()))
    needed = numbers * torch.empty(0, dtype=getattr(torch, settings.dtype)).element_size()
    file_bytes = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    if needed > MAX_GROWTH * file_bytes + SPARE_BYTES:
        raise AttnvizError(
            f"config.json of {settings.model!r} describes a model of {needed / 1e9:.1f} GB, but its weights are "
            f"{file_bytes / 1e9:.3f} GB: they do not belong together"
        )
    if settings.device_map is None:
        remedy = (
            f"use {option('dtype', 'bfloat16')} for half, or {option('device_map', 'auto')} to leave the rest on disk"
        )
        refuse_without_memory(needed, repr(settings.model), remedy)


@contextmanager
def discard_output() -> Iterator[None]:
    """Discards all output of the block: native code may print parts of a folder's files, with terminal controls.

    Redirects the file descriptors, since native code does not write to Python's streams.
    """
    copies = []
    with suppress(OSError):
        for number in (1, 2):
            copies.append((os.dup(number), number))
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        for _, number in copies:
            os.dup2(null, number)
        yield
    finally:
        for copy, number in copies:
            os.dup2(copy, number)
            os.close(copy)
        os.close(null)


@contextmanager
def forbid_pickles_and_network() -> Iterator[None]:
    """Forbids pickles and network access in the block, whatever the files of a folder make the libraries do."""
    import pickle

    import torch
    from huggingface_hub import constants

    patches: list[tuple[Any, str, object]] = [(torch, "load", _refuse_pickle), (pickle, "load", _refuse_pickle)]
    patches += [(pickle, "loads", _refuse_pickle), (constants, "HF_HUB_OFFLINE", True)]
    originals = [getattr(module, name) for module, name, _ in patches]
    try:
        for module, name, value in patches:
            setattr(module, name, value)
        yield
    finally:
        for (module, name, _), value in zip(patches, originals, strict=True):
            setattr(module, name, value)


def _refuse_pickle(*_: object, **__: object) -> None:
    raise AttnvizError("the model's folder names a pickle, which can run code when opened; use safetensors")


def refuse_random(settings: ModelSettings, model: "PreTrainedModel", report: dict[str, Any]) -> None:
    """Raises AttnvizError if weights that change the maps are missing from the file, or have another shape there.

    Weights after the last attention change no map. But a model that generates text needs its whole language head.

    Args:
        settings: name of the model, and number of tokens to generate.
        model: the loaded model.
        report: the loading report of transformers.
    """
    mismatched = {str(key[0] if isinstance(key, tuple) else key) for key in report.get("mismatched_keys", ())}
    absent = {str(key) for key in report.get("missing_keys", ())} | mismatched
    random = sorted(key for key in absent if key in mismatched or not _is_known(model, key))
    headless = sorted(key for key in absent if "pooler" not in key.split("."))
    if settings.generate and headless and not random:
        raise AttnvizError(
            f"{settings.model!r} has no language head ({headless[0]} is not in its file), so that it cannot generate; "
            f"leave out {option('generate')}"
        )
    if random:
        raise AttnvizError(
            f"{len(random)} weights of {settings.model!r} are not in its file (such as {random[0]}): "
            "they would be random; give a folder with all weights"
        )


def _is_known(model: "PreTrainedModel", key: str) -> bool:
    """True if a missing weight changes no map, or is computed from a formula (sinusoidal positions)."""
    owner = type(model.get_submodule(key.rpartition(".")[0])).__name__
    after = not AFTER_ATTENTION.isdisjoint(key.split(".")) and not ATTENTION_PART.search(key)
    return "Sinusoidal" in owner or after


def text_part(model: "PreTrainedModel") -> "PreTrainedModel":
    """Returns the part of a model that reads text: the model itself, or its text tower."""
    tower: PreTrainedModel | None = getattr(model, "text_model", None)
    return model if tower is None else tower


def position_limit(model: "PreTrainedModel") -> int | None:
    """Returns the number of positions of the model, or ``None`` if it has no limit."""
    config = model.config.get_text_config()
    limits = [getattr(config, name, None) for name in POSITION_LIMITS]
    known = [limit for limit in limits if isinstance(limit, int) and limit > 0]
    if not known:
        return None
    counted_from_padding = any(
        name.endswith("position_embeddings") and getattr(part, "padding_idx", None) is not None
        for name, part in model.named_modules()
    )
    # RoBERTa and its relatives number positions from padding_idx + 1, so that the first rows of the table are unused.
    return min(known) - ((config.pad_token_id or 0) + 1 if counted_from_padding else 0)


@contextmanager
def quiet_library(folder: Path) -> Iterator[None]:
    """Silences the log of transformers, and its progress bar where loading is quick; restores both at the end."""
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
            # They warn of weights that are missing or do not fit, which are refused in one line afterwards.
            warnings.filterwarnings("ignore", module=r"transformers|torch\.(nn|utils)")
            yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()


@contextmanager
def refusals(name: str) -> Iterator[None]:
    """Turns errors of libraries about a model's files into an AttnvizError; errors of this package's code pass."""
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
                f"{name!r} needs code of its own, which attnviz does not run; in Python, load the model and use "
                "attnviz.record(model)"
            ) from error
        if lacks_memory(error) or _is_ours(error):
            raise
        raise AttnvizError(f"cannot load {name!r}: {error_line(error)}") from error


def refuse_failing(module: "nn.Module", inputs: dict[str, Any], refusal: str) -> None:
    """Raises AttnvizError if a module fails on its inputs; a lack of memory is raised as it is.

    Args:
        module: what is called.
        inputs: its keyword arguments.
        refusal: the message, to which the reason is added.
    """
    import torch

    try:
        with torch.inference_mode():
            module(**inputs)
    except Exception as error:
        if lacks_memory(error):
            raise
        raise AttnvizError(f"{refusal}: {error_line(error)}") from error


def error_line(error: BaseException) -> str:
    """Returns the message of an error on one line, with the error's type if the message is a single word."""
    message = " ".join(str(error).split())
    shown = message if len(message) <= MAX_ERROR_CHARACTERS else f"{message[:MAX_ERROR_CHARACTERS]}…"
    return shown if " " in message else f"{type(error).__name__} {shown}".strip()


def _is_ours(error: BaseException) -> bool:
    """True if the error was raised by a line of this package, and not by a library that it called."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and Path(trace.tb_frame.f_code.co_filename).is_relative_to(PACKAGE)
