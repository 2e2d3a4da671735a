"""Finds the folder or GGUF file of a model, and checks without heavy imports whether it can be loaded.

A model of the hub is found in the cache of the hub's client, or downloaded there file by file.
"""

import os
import re
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from attnviz.base.errors import AttnvizError, did_you_mean, install, option, or_list
from attnviz.base.reading import OBJECT, either, read_json, read_text, refuse_other_kinds, sizes
from attnviz.media.sound import MAX_RATE
from attnviz.models.huggingface.gguf_file import gguf_at, gguf_named, read_gguf
from attnviz.models.huggingface.safety import (
    refuse_unsafe_files,
    refuse_unsafe_settings,
    refuse_unsafe_tokenizer,
    refuse_unsafe_weights,
)

MODEL_FILES = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja", "*.tiktoken", "*.spm", "*.tokenizer")
NETWORK_TIMEOUT = 1.2  # seconds
HTTPS_PORT = 443
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?", re.ASCII)
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack")
VOCABULARIES = ("tokenizer.json", "vocab*", "merges.txt", "*.model", "*.spm", "*.tiktoken", "*.tokenizer", "tokens.txt")
MAX_LISTED_FILES = 4  # in a message
MAX_IMAGE_SIDE = 4096  # pixels to which an image processor may resize
MAX_IMAGE_AREA = 2**25  # pixels, of processors that keep the shape of a picture; Qwen's are half of it
MAX_TILES = 16_384  # into which a processor may cut a picture, or patches
MAX_EXTRACTOR_NUMBER = 100_000_000  # such as samples of a window
PROCESSOR = "preprocessor_config.json"  # settings of the image processor
TEMPLATED_SETTINGS = ("tokenizer_config.json", "processor_config.json")
WHOLE_PROCESSOR = "processor_config.json"  # of a model of words and pictures
WITHOUT_VOCABULARY = re.compile(r'"(ByT5|Canine|Perceiver)Tokenizer(Fast)?"')  # these read bytes or characters
LAYER_COUNTS = re.compile(r"n_layers?|num_layers|(num_hidden|encoder|decoder|num_decoder)_layers")
HEAD_COUNTS = re.compile(r"n_heads?|num_heads|(num|encoder|decoder)_attention_heads")
MEANINGLESS_NAME = re.compile(r"(model|checkpoint|weights|snapshot|final|best)?s?[-_]?\d*", re.IGNORECASE)


def find_model(name: str, built_in: Sequence[str] = (), images: bool = False, sounds: bool = False) -> Path:
    """Returns the folder or GGUF file of a model: on this disk, in the hub's cache, or a new download."""
    path, given = local_model(name), Path(name).expanduser()
    if path is None and given.suffix == ".safetensors" and given.is_file():
        missing = [file for file in ("config.json", "tokenizer.json") if not given.with_name(file).is_file()]
        advice = f"the folder of a model also has {' and '.join(missing or ['its configuration'])}; give that folder"
        raise AttnvizError(f"{name!r} holds weights alone; {advice}")
    if path is None and given.exists():
        raise AttnvizError(f"{name!r} is no model; give {option('model')} a folder, a .gguf file or a name on the hub")
    if path is None and given.suffix in (".gguf", ".safetensors"):
        raise AttnvizError(f"there is no file {name!r}; give the folder of a model, or a .gguf file")
    if path is None and not HUB_NAME.fullmatch(name):
        choices = or_list([*built_in, "FILE.py:FUNCTION", "the folder, .gguf file or hub name of a model"])
        raise AttnvizError(f"no folder {name!r}; choose {choices}")
    refuse_missing_library("transformers")
    if path is None:
        cached_folder = cached_model(name)
        if cached_folder is not None and is_complete(cached_folder, images or sounds):
            path = cached_folder
        else:
            try:
                path = _download_model(name, is_incomplete=cached_folder is not None)
            except AttnvizError as error:
                if not (question := did_you_mean(name, built_in)):
                    raise
                raise AttnvizError(f"no model {name!r}; {question}Choose a folder, or a name on the hub") from error
    if path.is_dir():
        check_folder(path, name, images, sounds)
    else:
        refuse_missing_library("gguf")
        read_gguf(path, name)
        if images or sounds:
            raise AttnvizError(
                f"{name!r} is a GGUF file, of which attnviz reads the text model; give a text, or a folder"
            )
    return path


def _model_at(path: Path) -> Path | None:
    """Returns the folder or GGUF file of the model at a path; ``None`` for none."""
    return gguf_at(path) or (path if path.is_dir() else None)


def local_model(name: str) -> Path | None:
    """Returns the folder or GGUF file that a name stands for on this disk, outside the hub's cache; else ``None``.

    It is a path, or the name of a model of Ollama or LM Studio.
    """
    return _model_at(Path(name).expanduser()) or gguf_named(name)


def base_name(name: str) -> str:
    """Returns the name of a model without the adapter of ``BASE+ADAPTER``."""
    return name if local_model(name) is not None else name.partition("+")[0]


def needs_download(name: str) -> bool:
    """True if the model must be downloaded: its name is a hub name, and it is not complete in the hub's cache.

    False for a local folder or file, and for a text that is no hub name. The base of ``BASE+ADAPTER`` counts.
    """
    name = base_name(name)
    if local_model(name) is not None or not HUB_NAME.fullmatch(name):
        return False
    refuse_missing_library("transformers")
    cached_folder = cached_model(name)
    return cached_folder is None or not any(is_complete(cached_folder, images) for images in (False, True))


def cached_model(name: str) -> Path | None:
    """Returns the folder of a model in the cache, which may be incomplete; ``None`` if there is none."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, local_files_only=True, allow_patterns=["config.json"]))
    except LocalEntryNotFoundError:
        return None


def _download_model(name: str, is_incomplete: bool) -> Path:
    """Downloads the files of a model that are not in the cache, weights last, and returns their folder."""
    from huggingface_hub import hf_hub_download, model_info

    is_offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")
    if is_offline or not _is_online():
        reason = "incomplete in the hub's cache" if is_incomplete else "neither a folder here nor in the hub's cache"
        obstacle = "HF_HUB_OFFLINE is set" if is_offline else "the hub is out of reach"
        raise AttnvizError(f"no model {name!r} here: it is {reason}, and {obstacle}; give a folder or a cached model")
    with _quiet_client(), _hub_refusals(name):
        all_files = [file.rfilename for file in model_info(name).siblings or ()]
        files = [file for file in all_files if "/" not in file]
        _refuse_without_weights(files, name)
        model_files = sorted(
            (file for file in files if any(fnmatch(file, kind) for kind in MODEL_FILES)),
            key=lambda file: (file.endswith(".safetensors"), file),
        )
        paths = [Path(hf_hub_download(name, file)) for file in model_files]
        return paths[-1].parent  # the folder of the weights


@contextmanager
def _hub_refusals(name: str) -> Iterator[None]:
    """Turns every error of the hub's client in the block into an AttnvizError of one line."""
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    try:
        yield
    except AttnvizError:
        raise
    except GatedRepoError as error:
        raise AttnvizError(
            f"{name!r} is gated: ask its owners for access on its page, then log in with 'hf auth login' or set "
            "HF_TOKEN"
        ) from error
    except RepositoryNotFoundError as error:
        raise AttnvizError(
            f"no model {name!r} on the hub, or it is private; check the name, or log in with 'hf auth login'"
        ) from error
    except Exception as error:  # each version of the client raises errors of another network library
        reason = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
        raise AttnvizError(
            f"cannot download {name!r}: {reason}; complete files are kept; run the command again for the rest"
        ) from error


@contextmanager
def _quiet_client() -> Iterator[None]:
    """Silences the client's warnings, and its progress bars if stderr is no terminal; restores both at the end."""
    from huggingface_hub import utils

    client: Any = utils
    level, bars_are_hidden = client.logging.get_verbosity(), client.are_progress_bars_disabled()
    client.logging.set_verbosity_error()
    if not sys.stderr.isatty():
        client.disable_progress_bars()
    try:
        yield
    finally:
        client.logging.set_verbosity(level)
        if not bars_are_hidden:
            client.enable_progress_bars()


def _is_online() -> bool:
    """True if the hub, or a proxy that the environment names, accepts a connection within ``NETWORK_TIMEOUT``."""
    proxy = os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy") or os.environ.get("ALL_PROXY")
    address = urlsplit(proxy or os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    # The hub's client would retry for longer.
    is_reached = threading.Event()

    def probe() -> None:
        with suppress(OSError):
            socket.create_connection((address.hostname or "", address.port or HTTPS_PORT), NETWORK_TIMEOUT).close()
            is_reached.set()

    # In a thread, because looking up the address has no timeout.
    thread = threading.Thread(target=probe, daemon=True)
    thread.start()
    thread.join(NETWORK_TIMEOUT)
    return is_reached.is_set()


def check_folder(folder: Path, name: str, images: bool = False, sounds: bool = False) -> dict[str, Any]:
    """Checks the folder of a model, and returns its configuration."""
    refuse_unsafe_files(folder, name)
    if (folder / "adapter_config.json").is_file():
        raise AttnvizError(
            f"{name!r} holds a model and an adapter; move the adapter into a folder of its own, and give "
            f"{option('model', 'MODEL+ADAPTER')} or the model alone"
        )
    config = _config(folder, name)
    refuse_unsafe_settings(folder, name, config)
    _refuse_without_weights([file.name for file in folder.iterdir()], name)
    if images:
        settings = _processor_settings(folder)
        if settings is None:
            raise AttnvizError(
                f"{name!r} has no {PROCESSOR}, so it reads no images; give a text, or the folder of a vision model"
            )
        has_areas = "merge_size" in settings  # models that keep the image's shape give pixels of the whole image
        edge = sizes(0, MAX_IMAGE_AREA if has_areas else MAX_IMAGE_SIDE)
        kinds = {
            r"(\w+_)?size": either(edge, OBJECT),
            "height|width|longest_edge|shortest_edge": edge,
            r"(max|min)_pixels": sizes(0, MAX_IMAGE_AREA),
            r"(max|min|num)_(\w+_)?(tiles|crops|patch|patches)|image_grid_pinpoints": sizes(0, MAX_TILES),
        }
        refuse_other_kinds(settings, kinds, f"the image processor of {name!r}")
    elif sounds:
        path = folder / PROCESSOR
        settings = read_json(path) if path.is_file() else {}
        settings = settings if isinstance(settings, dict) else {}
        rate = settings.get("sampling_rate")
        if not isinstance(rate, int) or isinstance(rate, bool) or rate <= 0:
            raise AttnvizError(
                f"{name!r} has no {PROCESSOR} with a sampling_rate, so it reads no sound; give the folder of a speech "
                "model"
            )
        if rate > MAX_RATE:
            raise AttnvizError(f"{PROCESSOR} of {name!r} has sampling_rate {rate:g}, above the limit of {MAX_RATE:,}")
        numbers = (value for value in settings.values() if isinstance(value, int | float))
        if max(numbers, default=0) > MAX_EXTRACTOR_NUMBER:
            raise AttnvizError(f"{PROCESSOR} of {name!r} has a number above the limit of {MAX_EXTRACTOR_NUMBER:,}")
    elif not _has_tokenizer(folder):
        if (folder / PROCESSOR).is_file() and "vocab_size" not in config:
            raise AttnvizError(
                f"{name!r} reads pictures or sounds and no text; give one with {option('image', 'photo.jpg')} or "
                f"{option('sound', 'speech.wav')} (attnviz survey reads a folder of pictures); in Python "
                "attnviz.record(model) records any input"
            )
        raise AttnvizError(
            f"{name!r} has no tokenizer: every word would be unknown; copy tokenizer.json (or vocab.txt) into it"
        )
    refuse_unsafe_weights(folder, name, config)
    if not images:
        refuse_unsafe_tokenizer(folder, name)
    return config


def _processor_settings(folder: Path) -> dict[str, Any] | None:
    """Returns the settings of a folder's image processor; ``None`` if it has none."""
    if (folder / PROCESSOR).is_file():
        settings = read_json(folder / PROCESSOR)
        return settings if isinstance(settings, dict) else {}
    if not (folder / WHOLE_PROCESSOR).is_file():
        return None
    whole_settings = read_json(folder / WHOLE_PROCESSOR)
    settings = whole_settings.get("image_processor") if isinstance(whole_settings, dict) else None
    return settings if isinstance(settings, dict) else None


def _refuse_without_weights(files: Sequence[str], name: str) -> None:
    """Raises AttnvizError if no file is a safetensors file; the message names a pickle if there is one."""
    if any(fnmatch(file, "*.safetensors") for file in files):
        return
    if gguf_files := sorted(file for file in files if file.endswith(".gguf")):
        raise AttnvizError(
            f"{name!r} holds GGUF files alone ({', '.join(gguf_files[:MAX_LISTED_FILES])}"
            f"{' …' if len(gguf_files) > MAX_LISTED_FILES else ''}); download one, as with 'hf download {name} "
            f"{gguf_files[0]}', and give the path that it prints"
        )
    for kind in PICKLES:
        pickle_file = next((file for file in files if fnmatch(file, kind)), None)
        if pickle_file is not None:
            raise AttnvizError(
                f"{name!r} has its weights in {pickle_file}, which can run code when opened; convert them to "
                "safetensors (model.save_pretrained)"
            )
    raise AttnvizError(f"{name!r} has no weights; give a folder with model.safetensors")


def is_complete(folder: Path, images: bool = False) -> bool:
    """True if a folder has its configuration, a weight file, all weight files of its index, and its tokenizer."""
    weight_files = {file for index in folder.glob("*.safetensors.index.json") for file in _weight_files(index)}
    has_weights = all((folder / name).is_file() for name in weight_files) and any(folder.glob("*.safetensors"))
    reads_input = (folder / PROCESSOR).is_file() if images else _has_tokenizer(folder)
    return has_weights and reads_input and (folder / "config.json").is_file()


def _weight_files(index: Path) -> set[str]:
    """Returns the names of the weight files in an index; an empty set if the index is unreadable."""
    try:
        return {name for name in read_json(index)["weight_map"].values() if isinstance(name, str)}
    except (AttnvizError, KeyError, TypeError, AttributeError):
        return set()


def _has_tokenizer(folder: Path) -> bool:
    """True if the folder has a vocabulary file, or a tokenizer that needs none."""
    if any(next(folder.glob(kind), None) is not None for kind in VOCABULARIES):
        return True
    settings = folder / "tokenizer_config.json"
    return settings.is_file() and bool(WITHOUT_VOCABULARY.search(read_text(settings)))


def known_counts(folder: Path) -> tuple[int | None, int | None]:
    """Returns the largest numbers of layers and heads in the configuration; ``None`` without a whole number."""
    if folder.is_file():
        return read_gguf(folder, folder.name).counts
    config = _config(folder, str(folder))
    counts = (list(_values(config, names)) for names in (LAYER_COUNTS, HEAD_COUNTS))
    layers, heads = (
        max(of_name) if of_name and all(isinstance(count, int) for count in of_name) else None for of_name in counts
    )
    return layers, heads


def describe_name(name: str) -> str:
    """Returns a model's name for captions: the name of its folder or file, or ``name`` if it is no path.

    The parent's name precedes a name that tells nothing, such as ``checkpoint-500`` or ``model.gguf``.
    """
    path = _model_at(Path(name).expanduser())
    if path is None:
        return name
    path = path.resolve()
    return (
        f"{path.parent.name}/{path.name}" if MEANINGLESS_NAME.fullmatch(path.name.removesuffix(".gguf")) else path.name
    )


def refuse_without_chat_template(folder: str) -> None:
    """Raises AttnvizError if no file of a model's folder holds a chat template; no file is opened as code."""
    path = Path(folder).expanduser()
    if (file := gguf_at(path)) is not None:
        refuse_missing_library("gguf")
        if "tokenizer.chat_template" not in read_gguf(file, folder).metadata:
            raise no_chat_template_error()
        return
    settings = [read_text(path / name) for name in TEMPLATED_SETTINGS if (path / name).is_file()]
    if not any(path.glob("*chat_template*")) and not any('"chat_template"' in text for text in settings):
        raise no_chat_template_error()


def no_chat_template_error() -> AttnvizError:
    """Returns the refusal of a chat by a model that was not made for chats."""
    return AttnvizError(
        f"this model has no chat template; use a model made for chats, or a plain text without {option('chat', True)}"
    )


def refuse_missing_library(library: str) -> None:
    """Raises AttnvizError if an optional library is not installed."""
    if find_spec(library) is None:
        raise AttnvizError(f"{library} is not installed; run {install('gguf' if library == 'gguf' else 'hf')}")


def _config(folder: Path, name: str) -> dict[str, Any]:
    """Returns the configuration of a model's folder."""
    path = folder / "config.json"
    if not path.is_file():
        raise AttnvizError(f"{name!r} has no config.json; give the folder of a Hugging Face model")
    config = read_json(path)
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise AttnvizError(f"{str(path)!r} names no model_type; give the folder of a Hugging Face model")
    return config


def _values(config: Any, names: re.Pattern[str]) -> Iterator[Any]:
    """Yields the values of all settings whose name matches, also of settings in nested objects."""
    if isinstance(config, dict):
        yield from (value for name, value in config.items() if names.fullmatch(name))
        for part in config.values():
            yield from _values(part, names)
