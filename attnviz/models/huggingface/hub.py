"""A model by its name on the hub: its folder in the cache of the hub's own client, or downloaded into it by files."""

import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from attnviz.base.errors import AttnvizError

MODEL_FILES = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja", "*.tiktoken", "*.spm")
NETWORK_TIMEOUT = 1.2  # seconds
FileCheck = Callable[[list[str], str], None]


def cached_model(name: str) -> Path | None:
    """The folder of a model in the cache, which may hold but a part of it; ``None`` where there is none."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, local_files_only=True, allow_patterns=["config.json"]))
    except LocalEntryNotFoundError:
        return None


def download_model(name: str, check: FileCheck, in_part: bool = False) -> Path:
    """The folder of a model that is fetched now, except for files that an earlier try has fetched.

    Args:
        name: the model's.
        check: refuses the names of a model's files, before any is fetched.
        in_part: whether a part of it is in the cache, for the message.

    Raises:
        AttnvizError: for a name that the hub does not know or does not give, or where the connection fails; within
            two seconds where there is no network.
    """
    if not _is_online():
        here = "in the hub's cache in part only" if in_part else "neither a folder here nor in the hub's cache"
        raise AttnvizError(
            f"no model {name!r} here: it is {here}, and the hub is out of reach; a folder or a cached model works"
        )
    with _quiet_where_piped(), _refusals(name):
        return _download(name, check)


def _download(name: str, check: FileCheck) -> Path:
    """Fetches each file in this thread, so that an interrupt ends it at once; weights last, when all else is there."""
    from huggingface_hub import hf_hub_download, model_info

    listed = [file.rfilename for file in model_info(name).siblings or ()]
    files = [file for file in listed if "/" not in file]
    check(files, name)
    wanted = sorted(
        (file for file in files if any(fnmatch(file, kind) for kind in MODEL_FILES)),
        key=lambda file: (file.endswith(".safetensors"), file),
    )
    return [Path(hf_hub_download(name, file)) for file in wanted][-1].parent


@contextmanager
def _refusals(name: str) -> Iterator[None]:
    """Turns whatever the client raises into one line."""
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    try:
        yield
    except AttnvizError:
        raise
    except GatedRepoError as error:
        raise AttnvizError(
            f"{name!r} is gated: its owners give access to those who ask on its page; then log in with "
            "'hf auth login', or set HF_TOKEN"
        ) from error
    except RepositoryNotFoundError as error:
        raise AttnvizError(
            f"no model {name!r} on the hub, or it is private; check the name, or log in with 'hf auth login'"
        ) from error
    except Exception as error:  # of another network library in each version of the client
        reason = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
        raise AttnvizError(
            f"cannot download {name!r}: {reason}; whole files are kept, and the same command fetches the rest"
        ) from error


@contextmanager
def _quiet_where_piped() -> Iterator[None]:
    """The client's warnings unseen, and its progress where stderr is no terminal; both as before after it."""
    from huggingface_hub import utils

    client: Any = utils
    level, hidden = client.logging.get_verbosity(), client.are_progress_bars_disabled()
    client.logging.set_verbosity_error()
    if not sys.stderr.isatty():
        client.disable_progress_bars()
    try:
        yield
    finally:
        client.logging.set_verbosity(level)
        if not hidden:
            client.enable_progress_bars()


def _is_online() -> bool:
    """Whether the hub (or a proxy) accepts a connection within about a second; the hub's own client would retry."""
    if any(os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE") for name in ("HF_HUB_OFFLINE",)):
        return False
    proxy = os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy") or os.environ.get("ALL_PROXY")
    address = urlsplit(proxy or os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    answers: list[bool] = []
    asking = threading.Thread(target=lambda: answers.append(_answers(address.hostname, address.port)), daemon=True)
    asking.start()
    asking.join(NETWORK_TIMEOUT)
    return any(answers)


def _answers(host: str | None, port: int | None) -> bool:
    try:
        socket.create_connection((host or "", port or 443), NETWORK_TIMEOUT).close()
    except OSError:
        return False
    return True
