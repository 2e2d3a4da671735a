"""Loads a Hugging Face model and its tokenizer without log output and without running code from the folder."""

import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from attnviz.base.errors import AttnvizError, option
from attnviz.base.machine import find_device, is_out_of_memory, refuse_without_memory
from attnviz.base.printable import discard_output
from attnviz.base.progress import working
from attnviz.models.huggingface.adapter import merge_adapter, split_adapter
from attnviz.models.huggingface.gguf_file import read_gguf, replaced
from attnviz.models.reading.captured import error_line
from attnviz.models.reading.example import Use
from attnviz.models.reading.settings import ModelSettings

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

AFTER_ATTENTION = {"pooler", "lm_head", "classifier", "cls"}  # modules after the last layer, which change no map
ATTENTION_PART = re.compile(r"attn|attention", re.IGNORECASE)  # in the name of a weight that may change maps
POSITION_LIMITS = ("max_position_embeddings", "n_positions", "max_sequence_length")
ATTENTION_SETTING = "_attn_implementation_internal"  # the public name would pass a value on to the model's parts
TORCH_ATTENTION = ("eager", "sdpa", None)  # None lets transformers choose one of the others
MAX_GROWTH = 16  # ratio of weights in memory to weights in the file: numbers of 4 bits become float64
SPARE_BYTES = 2**28  # for weights that no file holds: computed tables, and modules after the attention
PROGRESS_BYTES = 500_000_000  # loading shows its progress if the weights are larger
PACKAGE = Path(__file__).parents[1]
IMAGE_CLASSIFIERS = ("ForImageClassification",)
OBJECT_HEADS = {  # the ends of the names of models that find objects in a picture, and the Auto classes that build them
    "ForObjectDetection": "AutoModelForObjectDetection",
    "ForUniversalSegmentation": "AutoModelForUniversalSegmentation",
    "ForInstanceSegmentation": "AutoModelForInstanceSegmentation",
    "ForSegmentation": "AutoModelForImageSegmentation",
}
LANGUAGE_HEADS = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "VisionEncoderDecoderModel", "MTModel")
GIGABYTE = 1e9
HALF_DTYPES = ("bfloat16", "float16")
PANIC = "PanicException"  # raised by tokenizers when its Rust code panics; not a subclass of Exception


def load_tokenizer(path: Path) -> "PreTrainedTokenizerBase":
    """Loads the model's tokenizer."""
    tokenizer: PreTrainedTokenizerBase = load_part("AutoTokenizer", path)
    return tokenizer


def load_part(auto_class: str, path: Path) -> Any:
    """Loads a part of a model that is not its weights, by a class of transformers.

    No code of the folder runs, and the library's output is discarded.
    """
    import transformers

    with _source(path, path) as source, working(f"loading {path.name}"), discard_output():
        return getattr(transformers, auto_class).from_pretrained(**source)


@contextmanager
def _source(path: Path, weights: Path) -> Iterator[dict[str, Any]]:
    """Yields the arguments of ``from_pretrained`` for a model's folder or GGUF file; no pickle is read in the block.

    A GGUF file is opened from an empty folder, since transformers would also read other files beside it.
    """
    common = {"local_files_only": True, "trust_remote_code": False}
    with _forbid_pickles_and_network():
        if path.is_dir():
            yield common | {"pretrained_model_name_or_path": str(path)}
            return
        with TemporaryDirectory(prefix="attnviz-") as folder:
            yield common | {"pretrained_model_name_or_path": folder, "gguf_file": str(weights.resolve())}


def load_model(path: Path, settings: ModelSettings, use: Use = "maps") -> "PreTrainedModel":
    """Loads the model of a folder or a GGUF file in evaluation mode, with the head that the use needs.

    Args:
        use: what the reader does with the model; only ``pictures`` and ``answers`` are of one that reads text, too.
    """
    import torch
    import transformers

    dtype = getattr(torch, settings.dtype)
    is_gguf = path.is_file()
    # Of numbers of few bits the count is known, and what they take in memory as 32 bits.
    file_bytes = sum(file.stat().st_size for file in path.glob("*.safetensors"))
    header = read_gguf(path, settings.model) if is_gguf else None
    if header is not None:
        file_bytes = 4 * header.number_count
    with ExitStack() as stack:
        weights = path if header is None else stack.enter_context(header.joined())
        source = stack.enter_context(_source(path, weights))
        with working(f"reading the configuration of {path.name}"):
            config = transformers.AutoConfig.from_pretrained(**source)
        _use_torch_attention(config)
        has_language_head = is_gguf or _has_head(config, LANGUAGE_HEADS)
        predicts = use in ("predictions", "answers") and has_language_head
        auto_class = _auto_class(config, use, with_language_head=bool(settings.generate) or predicts)
        if use == "labels" and _has_head(config, IMAGE_CLASSIFIERS):
            auto_class = transformers.AutoModelForImageClassification
        for ending, name in OBJECT_HEADS.items() if use == "images" else ():
            if _has_head(config, (ending,)):
                auto_class = getattr(transformers, name)
        # Built without memory first, because loading would allocate weights that no file holds.
        with torch.device("meta"), working(f"counting the weights of {path.name}"):
            described_model = auto_class.from_config(config)
        number_count = sum(tensor.numel() for tensor in (*described_model.parameters(), *described_model.buffers()))
        needed_bytes = number_count * torch.empty(0, dtype=getattr(torch, settings.dtype)).element_size()
        if needed_bytes > MAX_GROWTH * file_bytes + SPARE_BYTES:
            raise AttnvizError(
                f"{'the metadata' if is_gguf else 'config.json'} of {settings.model!r} "
                f"{'describe' if is_gguf else 'describes'} a model of {needed_bytes / GIGABYTE:.1f} GB, but its "
                f"weights are {file_bytes / GIGABYTE:.3f} GB: they do not belong together; copy both from one model"
            )
        if settings.device_map is None:
            smaller = "" if settings.dtype in HALF_DTYPES else f"{option('dtype', 'bfloat16')} to need less, or "
            remedy = f"use {smaller}{option('device_map', 'auto')} to leave the rest on disk"
            refuse_without_memory(needed_bytes, repr(settings.model), remedy)
        options: dict[str, Any] = {} if settings.device_map is None else {"device_map": settings.device_map}
        if is_gguf and hasattr(transformers, "GgufConfig"):  # else newer versions fetch kernels for packed weights
            options["quantization_config"] = transformers.GgufConfig(dequantize=True)
        model, report = auto_class.from_pretrained(
            **source,
            config=config,
            use_safetensors=True,
            dtype=dtype,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # refuse_random_weights reports them in one line
            **options,
        )
    refuse_random_weights(settings, model, report)
    _, adapter = split_adapter(settings.model)
    if adapter is not None:
        with working(f"merging {adapter.name}"):
            merge_adapter(model, adapter)
    if settings.device_map is None:
        model.to(find_device(settings.device))
    evaluated_model: PreTrainedModel = model.eval()
    return evaluated_model


def _auto_class(config: Any, use: Use, with_language_head: bool) -> Any:
    """Returns the Auto class of transformers that builds a model with the head that it needs."""
    import transformers

    if use == "sounds" and config.is_encoder_decoder:
        return transformers.AutoModelForSpeechSeq2Seq
    if not with_language_head:
        return transformers.AutoModel
    if use in ("pictures", "answers"):
        return transformers.AutoModelForImageTextToText
    return transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModelForCausalLM


def _use_torch_attention(config: Any) -> None:
    """Changes a configuration, and those of its parts, so that the model runs torch's attention.

    Other settings run other code: a kernel of the hub is native code, and flex_attention compiles for minutes.
    """
    if getattr(config, ATTENTION_SETTING, None) not in TORCH_ATTENTION:
        setattr(config, ATTENTION_SETTING, None)  # transformers then chooses one of torch's
    for name in getattr(config, "sub_configs", None) or ():
        part = getattr(config, name, None)
        if part is not None:
            _use_torch_attention(part)


def _has_head(config: Any, endings: tuple[str, ...]) -> bool:
    """True if the model was saved as a class whose name has one of these endings."""
    return any(str(name).endswith(endings) for name in getattr(config, "architectures", None) or ())


@contextmanager
def _forbid_pickles_and_network() -> Iterator[None]:
    """Turns the hub's client offline, and makes every attempt to load a pickle raise AttnvizError, during the block.

    The functions that load pickles are ``torch.load``, ``pickle.load`` and ``pickle.loads``.
    """
    import pickle

    import torch
    from huggingface_hub import constants

    with replaced(
        (torch, "load", _refuse_pickle),
        (pickle, "load", _refuse_pickle),
        (pickle, "loads", _refuse_pickle),
        (constants, "HF_HUB_OFFLINE", True),
    ):
        yield


def _refuse_pickle(*_: object, **__: object) -> None:
    """Raises AttnvizError; stands in for the functions that load pickles."""
    raise AttnvizError("the model's folder names a pickle, which can run code when opened; use safetensors")


def refuse_random_weights(settings: ModelSettings, model: "PreTrainedModel", report: dict[str, Any]) -> None:
    """Raises AttnvizError if weights that change the maps are missing from the file, or have another shape there.

    A model that generates text also needs every weight of its language head.
    """
    # A mismatched key comes alone, or as a tuple with the two shapes.
    mismatched_keys = {str(key[0] if isinstance(key, tuple) else key) for key in report.get("mismatched_keys", ())}
    missing_keys = {str(key) for key in report.get("missing_keys", ())} | mismatched_keys
    random_weights = sorted(key for key in missing_keys if key in mismatched_keys or not _changes_no_map(model, key))
    missing_beside_pooler = sorted(key for key in missing_keys if "pooler" not in key.split("."))
    if settings.generate and missing_beside_pooler and not random_weights:
        raise AttnvizError(
            f"{settings.model!r} has no language head ({missing_beside_pooler[0]} is not in its file), so that it "
            f"cannot generate; leave out {option('generate')}"
        )
    if random_weights:
        raise AttnvizError(
            f"weights of {settings.model!r} are not in its files, or have another shape there "
            f"({len(random_weights)} in all, such as {random_weights[0]}): they would be random; give a folder with "
            "all weights"
        )


def _changes_no_map(model: "PreTrainedModel", key: str) -> bool:
    """True if a missing weight comes after the last attention, or is computed (sinusoidal positions)."""
    module_type = type(model.get_submodule(key.rpartition(".")[0])).__name__
    is_after_attention = not AFTER_ATTENTION.isdisjoint(key.split(".")) and not ATTENTION_PART.search(key)
    return "Sinusoidal" in module_type or is_after_attention


def text_part(model: "PreTrainedModel") -> "PreTrainedModel":
    """Returns the text tower of a model; the model itself if it has none."""
    text_tower: PreTrainedModel | None = getattr(model, "text_model", None)
    return model if text_tower is None else text_tower


def position_limit(model: "PreTrainedModel") -> int | None:
    """Returns the largest number of tokens that the model has positions for; ``None`` if its settings name none."""
    config = model.config.get_text_config()
    limits = [getattr(config, name, None) for name in POSITION_LIMITS]
    positive_limits = [limit for limit in limits if isinstance(limit, int) and limit > 0]
    if not positive_limits:
        return None
    are_numbered_from_padding = any(
        name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None
        for name, module in model.named_modules()
    )
    # RoBERTa and its relatives number positions from padding_idx + 1, so the first rows of the table are unused.
    unused_rows = (config.pad_token_id or 0) + 1 if are_numbered_from_padding else 0
    return min(positive_limits) - unused_rows


@contextmanager
def quiet_library(folder: Path | None) -> Iterator[None]:
    """Silences the log and warnings of transformers in the block, and its progress bar.

    If a large model loads in a terminal, the bar stays until the model is loaded. Also turns off the parallelism of
    tokenizers for good, because they warn if the process forks, unless TOKENIZERS_PARALLELISM is set.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from transformers.utils import logging as library

    logging: Any = library
    level, had_progress_bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    size = 0 if folder is None else sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    logging.set_verbosity(logging.CRITICAL)
    set_bar_hook = getattr(logging, "set_tqdm_hook", lambda hook: None)  # older versions have none
    earlier_hook = set_bar_hook(lambda make_bar, args, options: make_bar(*args, **options | {"leave": False}))
    if not (sys.stderr.isatty() and size > PROGRESS_BYTES):
        logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            # These libraries warn of weights that are missing or do not fit, which are refused in one line afterwards.
            warnings.filterwarnings("ignore", module=r"transformers|torch\.(nn|utils)")
            yield
    finally:
        set_bar_hook(earlier_hook)
        logging.set_verbosity(level)
        if had_progress_bar:
            logging.enable_progress_bar()


@contextmanager
def refusals(name: str, task: str = "cannot load") -> Iterator[None]:
    """Turns errors of libraries in the block into an AttnvizError about a model's files.

    Errors that this package raises, a lack of memory, and an interrupt pass through.
    """
    from safetensors import SafetensorError

    try:
        yield
    except (AttnvizError, MemoryError):
        raise
    except SafetensorError as error:
        raise AttnvizError(f"the weights of {name!r} are cut off or damaged: {error}; copy them again") from error
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != PANIC:
            raise
        message = str(error)
        if "trust_remote_code" in message or "custom code" in message:
            raise AttnvizError(
                f"{name!r} needs custom code, which attnviz does not run; in Python, load the model and use "
                "attnviz.record(model)"
            ) from error
        if "GGUF model with architecture" in message:
            advice = "give the folder of its safetensors"
            raise AttnvizError(f"cannot load {name!r}: {message.rstrip('.')}; {advice}") from error
        frame = error.__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        is_ours = frame is not None and Path(frame.tb_frame.f_code.co_filename).is_relative_to(PACKAGE)
        if is_out_of_memory(error) or is_ours:  # ours: a line of this package raised it, and no library
            raise
        raise AttnvizError(f"{task} {name!r}: {error_line(error)}") from error
