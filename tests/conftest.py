"""Fixtures shared by the tests: maps with as many axes of different length as can be, so that none can be confused."""

import gc
import importlib
import os
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer.main
from hypothesis import HealthCheck, settings

from attnviz.api.recording import DrawableRecording
from attnviz.maps.cell_maps import DenseMaps
from attnviz.maps.layer_maps import CellMaps, cell_maps
from attnviz.maps.recording import Recording
from attnviz.text.tokens import Tokens
from tests.streams import Streams
from tests.today import SEED, WHOLE

settings.register_profile(  # a busy machine is no bug
    "unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=100 if WHOLE else 25
)
settings.load_profile("unhurried")

LAYERS, HEADS, QUERIES, KEYS = 2, 3, 5, 7


def dense_maps(layer: int = 0, causal: bool = False, seed: int = 0) -> DenseMaps:
    """Random maps of one layer, ``(3 heads, 5 queries, 7 keys)``."""
    tokens = Tokens.numbered(QUERIES, "q"), Tokens.numbered(KEYS, "k")
    return replace(random_maps(*tokens, layer=layer, causal=causal, seed=seed + layer), kind="cross")


def random_maps(
    queries: Tokens,
    keys: Tokens | None = None,
    *,
    layer: int = 0,
    heads: int = HEADS,
    causal: bool = False,
    peak: float = 1.0,
    seed: int = 0,
) -> DenseMaps:
    """Maps over these tokens whose weights are the softmax of random scores, ``peak`` their standard deviation."""
    keys = keys or queries
    shape = len(queries), len(keys)
    scores = np.random.default_rng(seed).normal(scale=peak, size=(heads, *shape)).astype(np.float32)
    visible = np.tri(*shape, dtype=bool) if causal else np.ones(shape, dtype=bool)
    powers = np.where(visible, np.exp(scores), 0)
    return DenseMaps(
        layer=layer,
        module=f"layers.{layer}",
        heads=tuple(range(heads)),
        query_tokens=queries,
        key_tokens=keys,
        scores=scores,
        weights=(powers / powers.sum(axis=-1, keepdims=True)).astype(np.float32),
        visible=visible,
    )


def cells(recording: Recording, layer: int = 0) -> CellMaps:
    """The maps of a layer, whose single cells are known."""
    return cell_maps(recording.maps[layer])


def every_head(recording: Recording) -> list[tuple[CellMaps, int]]:
    """All heads of a recording in layer order, each with its maps."""
    return [(cell_maps(maps), head) for maps in recording.maps for head in maps.heads]


def dense(recording: Recording, layer: int = 0) -> DenseMaps:
    """The maps of a layer, which are known to be held whole."""
    maps = recording.maps[layer]
    assert isinstance(maps, DenseMaps)
    return maps


def pytest_report_header() -> str:
    """The seed that repeats this run."""
    return f"seed of the day: TESTS_SEED={SEED}"


def pytest_configure(config: pytest.Config) -> None:
    """The whole suite starts some forty processes: whatever the shell says, none of them compiles all modules anew."""
    if config.args == ["tests"]:
        sys.dont_write_bytecode = False
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_addoption(parser: pytest.Parser) -> None:
    """No test may need that another one ran before it."""
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run files, and the tests of each, in another order")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Slow files begin and quick ones fill the gaps at the end, or all are shuffled; a file's tests stay together."""
    slow_files = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow_files)
    if (seed := config.getoption("shuffle")) is not None:
        draw = random.Random(seed)
        places = {item.path: draw.random() for item in items}
        items.sort(key=lambda item: (places[item.path], draw.random()))


def pytest_collection() -> None:
    """Imports make no garbage, and what they make lives to the end: collecting would only search it again and again."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Garbage is collected from now on, among what the tests make."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)  # machines with a card may have no xdist
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """A process a core for the whole suite; this one alone where files are named: starting more would take longer."""
    return None if config.args == ["tests"] else 0


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same colours, size of the screen and lines on every machine, whatever its terminal asks for and its speed."""
    monkeypatch.setattr("attnviz.base.progress.SECONDS_BEFORE_LOG", 1e6)
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def no_pickle(monkeypatch: pytest.MonkeyPatch) -> None:
    """``torch.load`` runs code that a file holds: nothing of attnviz ever calls it, whatever it is given."""

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("torch.load was called")

    if "torch" in sys.modules:
        monkeypatch.setattr("torch.load", fail)


@pytest.fixture(autouse=True)
def torch_as_it_was() -> Iterator[None]:
    """Each test draws the same random numbers and computes on the same threads, whichever tests run before it."""
    if "torch" not in sys.modules:
        yield
        return
    import torch

    torch.manual_seed(0)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True, scope="session")
def programs_built_once() -> Iterator[None]:
    """Typer builds a program from its functions for each command line: a fifth of what a small one takes."""
    from attnviz.cli import commands

    make_program, built = commands.program, dict[tuple[str, ...], Any]()

    def program(words: Sequence[str]) -> Any:
        made = make_program(words)
        names = tuple(str(command.name or command.callback) for command in made.registered_commands)
        if names not in built:
            built[names] = typer.main.get_command(made)
        return built[names]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commands, "program", program)
        yield


@pytest.fixture(scope="module")
def models_loaded_once() -> Iterator[None]:
    """Loads the model of each folder once for all tests of a file that change no folder."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("reader", "image_reader", "picture_text_reader", "sound_reader"):
            module = importlib.import_module(f"attnviz.models.huggingface.{name}")
            patch.setattr(module, "load_model", cache(module.load_model))
        yield


@pytest.fixture
def recording() -> DrawableRecording:
    """2 layers x 3 heads x 5 queries x 7 keys, all visible."""
    return DrawableRecording(maps=tuple(dense_maps(layer) for layer in range(LAYERS)), model="a test")


@pytest.fixture
def causal_recording() -> DrawableRecording:
    """The same, with a causal mask."""
    return DrawableRecording(maps=tuple(dense_maps(layer, causal=True) for layer in range(LAYERS)), model="a test")


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Streams:
    """Runs command lines in this process."""
    return Streams(capsys)


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that the test works in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
