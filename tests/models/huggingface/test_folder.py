"""Models by their names: fetched from a small hub on the loopback address, resumed, used offline, and refused."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from attnviz.models.huggingface.folder import needs_download
from tests.models.huggingface.hub_server import Hub, served
from tests.patience import PATIENCE

CODE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell may have had this process ignore
import huggingface_hub.constants
huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE = 1000
from attnviz.models.huggingface import folder as huggingface_folder
from attnviz.base.errors import AttnvizError
try:
    print(huggingface_folder.find_model(sys.argv[1]))
except AttnvizError as error:
    sys.exit(str(error))
"""
WEIGHTS = 40_000
INDEX = '{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}'
FILES = {
    "config.json": b'{"model_type": "bert"}',
    "tokenizer.json": b"{}",
    "model.safetensors.index.json": INDEX.encode(),
    "model-00001-of-00002.safetensors": bytes(WEIGHTS // 4),
    "model-00002-of-00002.safetensors": bytes(WEIGHTS),
}
NOWHERE = "http://127.0.0.1:9"  # where nothing answers


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    folders = {name: tmp_path / name for name in ("someone/tiny", "someone/pickled", "someone/gated", "someone/gguf")}
    for name, folder in folders.items():
        folder.mkdir(parents=True)
        for file, content in FILES.items():
            pickled = name == "someone/pickled" and file.endswith(".safetensors")
            (folder / (file.replace(".safetensors", ".bin") if pickled else file)).write_bytes(content)
    for path in list((tmp_path / "someone/gguf").iterdir()):
        path.rename(path.with_name("tiny-Q8_0.gguf" if path.suffix == ".safetensors" else "README.md"))
    with served(folders) as hub:
        hub.gated.add("someone/gated")
        yield hub


class Machine:
    """A machine with an empty cache that looks for models."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def start(self, address: str, name: str) -> subprocess.Popen[str]:
        environment = {"HF_HOME": str(self.home), "HF_ENDPOINT": address, "PYTHONPATH": str(Path.cwd())}
        return subprocess.Popen(
            [sys.executable, "-c", CODE, name],
            env=environment | {"PATH": os.environ["PATH"]},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def found(self, address: str, name: str = "someone/tiny") -> tuple[str, str]:
        """The folder, and what was written on stderr."""
        with self.start(address, name) as run:
            folder, said = run.communicate(timeout=PATIENCE)
        return folder.strip(), said


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "home")


def test_name_is_downloaded_once_without_a_word_and_then_used_offline(hub: Hub, machine: Machine) -> None:
    folder, said = machine.found(hub.address)
    assert {path.name: path.read_bytes() for path in Path(folder).iterdir()} == FILES
    assert said == ""
    assert machine.found(NOWHERE) == (folder, "")
    asked = len(hub.requests)
    assert machine.found(hub.address) == (folder, "")
    assert len(hub.requests) == asked


def test_interrupted_download_ends_at_once_and_fetches_what_is_missing_later(hub: Hub, machine: Machine) -> None:
    hub.stall_after = WEIGHTS // 2
    with machine.start(hub.address, "someone/tiny") as run:
        assert hub.stalled.wait(PATIENCE)
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=PATIENCE)
    hub.stall_after = None
    assert "it is incomplete in the hub's cache, and the hub is out of reach" in machine.found(NOWHERE)[1]
    hub.requests.clear()
    folder, said = machine.found(hub.address)
    assert {path.name: path.read_bytes() for path in Path(folder).iterdir()} == FILES
    assert said == ""
    assert hub.fetched == ["model-00002-of-00002.safetensors"]


@pytest.mark.skipif(version("huggingface_hub") < "1", reason="older clients end where a connection breaks")
def test_broken_connection_is_taken_up_where_it_broke(hub: Hub, machine: Machine) -> None:
    hub.break_after = WEIGHTS * 3 // 4
    folder, said = machine.found(hub.address)
    assert (Path(folder) / "model-00002-of-00002.safetensors").read_bytes() == bytes(WEIGHTS)
    assert said == ""
    assert re.fullmatch(r"bytes=[1-9]\d+-", hub.ranges[-1])


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("someone/nothing", "no model 'someone/nothing' on the hub, or it is private; check the name"),
        ("someone/gated", "'someone/gated' is gated: ask its owners for access on its page"),
        (
            "someone/gguf",
            "'someone/gguf' holds GGUF files alone (tiny-Q8_0.gguf); download one, as with 'hf download someone/gguf "
            "tiny-Q8_0.gguf', and give the path that it prints",
        ),
        (
            "someone/pickled",
            "'someone/pickled' has its weights in model-00001-of-00002.bin, which can run code when opened",
        ),
    ],
)
def test_refuses_in_one_line(name: str, says: str, hub: Hub, machine: Machine) -> None:
    folder, said = machine.found(hub.address, name)
    assert said.startswith(says)
    assert (folder, said.count("\n")) == ("", 1)
    assert hub.ranges == []


def test_refuses_in_one_line_without_a_network_and_where_the_hub_is_down(hub: Hub, machine: Machine) -> None:
    assert "nor in the hub's cache, and the hub is out of reach" in machine.found(NOWHERE)[1]
    hub.status = 503
    folder, said = machine.found(hub.address)
    assert (folder, said.count("\n")) == ("", 1)
    assert said.startswith("cannot download 'someone/tiny': ")
    assert "503" in said


@pytest.mark.parametrize(
    ("file", "is_missing"), [("tokenizer.json", False), ("preprocessor_config.json", False), ("notes.txt", True)]
)
def test_a_cached_model_needs_no_download_if_it_can_read_texts_or_images(
    file: str, is_missing: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attnviz.models.huggingface.folder.cached_model", lambda _: tmp_path)
    for name in ("config.json", "model.safetensors", file):
        (tmp_path / name).write_text("{}")
    assert needs_download("someone/tiny") == is_missing
