"""Finds a model of the hub in the cache of the hub's client, or downloads it there file by file."""

import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from attnviz.base.errors import AttnvizError

MODEL_FILES = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja", "*.tiktoken", "*.spm", "*.tokenizer")
NETWORK_TIMEOUT = 1.2  # seconds
HTTPS_PORT = 443
FileCheck = Callable[[list[str], str], None]


def cached_model(name: str) -> Path | None:
    """Returns the folder of a model in the cache, which may be incomplete; ``None`` if there is none."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, local_files_only=True, allow_patterns=["config.json"]))
    except LocalEntryNotFoundError:
        return None


def download_model(name: str, check: FileCheck, is_incomplete: bool = False) -> Path:
    """Downloads a model, except for files in the cache, and returns its folder."""
    if not _is_online():
        reason = "incomplete in the hub's cache" if is_incomplete else "neither a folder here nor in the hub's cache"
        raise AttnvizError(
            f"no model {name!r} here: it is {reason}, and the hub is out of reach; give a folder or a cached model"
        )
    with _quiet_client(), _refusals(name):
        return _download(name, check)


def _download(name: str, check: FileCheck) -> Path:
    """Downloads the model's files, weights last, and returns their folder."""
    from huggingface_hub import hf_hub_download, model_info

    all_files = [file.rfilename for file in model_info(name).siblings or ()]
    files = [file for file in all_files if "/" not in file]
    check(files, name)
    model_files = sorted(
        (file for file in files if any(fnmatch(file, kind) for kind in MODEL_FILES)),
        key=lambda file: (file.endswith(".safetensors"), file),
    )
    paths = [Path(hf_hub_download(name, file)) for file in model_files]
    return paths[-1].parent  # the folder of the weights


@contextmanager
def _refusals(name: str) -> Iterator[None]:
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
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return False
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
