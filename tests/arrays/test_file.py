"""Files of arrays that other programs write, and what the command line makes of them."""

import io
import json
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import attnviz
from attnviz.arrays.file import read_arrays
from attnviz.cli.commands import main
from attnviz.maps.cell_maps import OnDemandMaps
from attnviz.maps.layer_maps import cell_maps
from tests.streams import Streams

LABELS = ["the", "cat", "sat", "on", "it"]


def weights_of(*shape: int) -> Any:
    """Rows that sum to 1, of this shape."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).softmax(-1).numpy()


def read(recording: Any, place: int = 0) -> Any:
    """All weights of a call."""
    maps = cell_maps(recording.maps[place])
    return maps.window(maps.heads, slice(0, len(maps.query_tokens)), slice(0, len(maps.key_tokens))).weights


def test_layers_are_told_and_ordered_by_the_names_of_arrays(tmp_path: Path) -> None:
    weights = weights_of(2, 3, 5, 5)
    about = np.array(json.dumps({"model": "mine"}))
    np.savez(
        tmp_path / "a.npz", **{"7.weights": weights[1], "2.weights": weights[0]}, tokens=np.array(LABELS), about=about
    )
    recording = read_arrays(tmp_path / "a.npz")
    assert [maps.layer for maps in recording.maps] == [2, 7]
    assert recording.model == "mine"
    assert recording.maps[0].query_tokens.labels == tuple(LABELS)
    np.testing.assert_array_equal(read(recording, 0), weights[0])


def test_one_array_without_a_name_has_layers_first(tmp_path: Path) -> None:
    weights = weights_of(2, 3, 5, 5)
    np.savez(tmp_path / "a.npz", weights)
    np.save(tmp_path / "a.npy", weights)
    for name in ("a.npz", "a.npy"):
        recording = read_arrays(tmp_path / name)
        np.testing.assert_array_equal(read(recording, 1), weights[1])


def test_bfloat16_of_safetensors_is_read(tmp_path: Path) -> None:
    weights = torch.tensor(weights_of(1, 2, 5, 5)).bfloat16()
    save_file(
        {"blocks.4.attn.hook_pattern": weights},
        tmp_path / "a.safetensors",
        {"tokens": json.dumps(LABELS), "model": "m"},
    )
    recording = read_arrays(tmp_path / "a.safetensors")
    assert recording.model == "m"
    np.testing.assert_array_equal(read(recording), weights[0].float().numpy())


def test_queries_and_keys_of_a_file_take_its_mask_and_scale(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    queries, keys = random.normal(size=(2, 5, 4)), random.normal(size=(2, 5, 4))
    np.savez(tmp_path / "a.npz", queries=queries, keys=keys, mask=np.array("causal"), scale=np.array(0.7))
    scores = np.where(np.tri(5, dtype=bool), queries @ keys.transpose(0, 2, 1) * 0.7, -np.inf)
    powers = np.exp(scores)
    np.testing.assert_allclose(read(read_arrays(tmp_path / "a.npz")), powers / powers.sum(-1, keepdims=True), atol=1e-6)


@pytest.mark.parametrize("layers", [[], ["--layers", "1"]])
def test_reads_the_numbers_that_attnviz_wrote(tmp_path: Path, layers: list[str]) -> None:
    run = ["show", "a cat. a cat", "--model", "trained", *layers]
    assert main([*run, "-o", str(tmp_path / "n.npz")]) == 0
    assert main(["show", str(tmp_path / "n.npz"), "-o", str(tmp_path / "again.npz")]) == 0
    first, again = (np.load(tmp_path / name) for name in ("n.npz", "again.npz"))
    assert first.files == again.files
    for name in first.files[1:]:
        np.testing.assert_array_equal(first[name], again[name])
    about, later = (json.loads(str(each["about"])) for each in (first, again))
    assert later["heads"] == about["heads"]
    assert later["recording"]["model"] == about["recording"]["model"]


def test_labels_come_from_a_file(tmp_path: Path, shell: Streams) -> None:
    np.save(tmp_path / "w.npy", weights_of(2, 5, 5))
    (tmp_path / "t.txt").write_text("\n".join(LABELS) + "\n")
    drawn = shell.run("show", str(tmp_path / "w.npy"), "--set", f"labels={tmp_path / 't.txt'}", "--heads", "1")
    assert all(label in drawn for label in LABELS)
    assert "has its own tokens" in shell.refused("show", "a text", "--set", f"labels={tmp_path / 't.txt'}")


def test_arrays_become_a_recording(tmp_path: Path) -> None:
    weights = weights_of(2, 3, 5, 5)
    np.save(tmp_path / "w.npy", weights)
    assert main(["show", str(tmp_path / "w.npy"), "-o", str(tmp_path / "run.safetensors")]) == 0
    np.testing.assert_array_equal(read(attnviz.load(tmp_path / "run.safetensors"), 1), weights[1])


def npy(shape: str) -> bytes:
    """An array of nine zeros whose header states a shape."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(36)


def zipped(entries: dict[str, bytes], method: int = 0, flags: int = 0) -> bytes:
    """An archive whose headers state a method of compression and flags, whatever its entries are."""
    with io.BytesIO() as file:
        with zipfile.ZipFile(file, "w") as archive:
            for name, content in entries.items():
                archive.writestr(name, content)
        data = bytearray(file.getvalue())
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        if method or flags:
            data[data.index(mark) + offset] = flags
            data[data.index(mark) + offset + 2] = method
    return bytes(data)


@pytest.mark.parametrize(
    ("name", "written", "said"),
    [
        ("a.npz", {"x": np.ones(3)}, "holds no attention under a known name: its arrays are x; name them weights"),
        ("a.npz", {"x": np.array([object()])}, "numpy did not write it, or it holds Python objects"),
        ("a.npz", {"weights": np.eye(2), "tokens": np.ones(2)}, "give a list of strings"),
        (
            "a.npz",
            {"queries": np.ones((1, 2, 2)), "keys": np.ones((1, 2, 2)), "scale": np.ones(2)},
            "give a single finite number",
        ),
        ("a.npz", {"weights": np.eye(2), "about": np.array("[]")}, "is not a JSON object"),
        ("a.npz", {"weights": np.eye(2), "about": np.array('{"heads": [{}]}')}, "numbers of a comparison"),
        ("a.npz", b"PK junk", "File is not a zip file"),
        ("a.npy", b"junk", "numpy did not write it"),
        ("a.safetensors", b"junk", "is not a safetensors file, or is cut off"),
        ("five.npz", {name: np.ones(3) for name in "abcde"}, "its arrays are a, b, c, d, e;"),
        ("six.npz", {name: np.ones(3) for name in "abcdef"}, "its arrays are a, b, c, d, e, …;"),
        ("missing.npy", None, "there is no file"),
        ("a.npy", npy("(True, 3, 3)"), "cannot read"),
        ("a.npy", npy("(-1, 3)"), "cannot read"),
        ("a.npz", zipped({"weights.bin": b"abc"}), "its arrays are none; name them weights"),
        ("a.npz", zipped({"weights.npy": b"abc"}), "its arrays are none; name them weights"),
        ("a.npz", zipped({"weights.npy": npy("(True, 3, 3)")}), "cannot read"),
        ("a.npz", zipped({"weights.npy": npy("(1, 3, 3)")}, method=99), "compression"),
        ("a.npz", zipped({"weights.npy": npy("(1, 3, 3)")}, flags=1), "is encrypted"),
        ("a.npz", zipped({"tokens.npy": b"abc", "weights.npy": npy("(1, 3, 3)")[:-30]}), "cannot read"),
        ("a.npz", zipped({f"a{index}.npy": b"" for index in range(20_001)}), "holds 20001 arrays; give at most 20000"),
        ("a.npz", zipped({"\x0elimits=(\x0f.npy": npy("(3,)")}), "its arrays are"),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else None,  # an archive holds the time at which it was made
)
def test_refuses_other_files(tmp_path: Path, name: str, written: Any, said: str) -> None:
    path = tmp_path / name
    if isinstance(written, bytes):
        path.write_bytes(written)
    elif written is not None:
        np.savez(path, **written)
    with pytest.raises(attnviz.AttnvizError, match=said):
        read_arrays(path)


@pytest.mark.parametrize(
    ("name", "dtype", "most_bytes"),
    [  # of a cell: what the file stores, float32, visible cells
        ("weights", np.float32, 4 + 0 + 2),
        ("weights", np.float16, 2 + 4 + 2),
        ("weights", bool, 1 + 4 + 2),
        ("scores", np.float32, 4 + 4 + 2),
    ],
)
def test_a_large_archive_is_copied_at_most_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, dtype: Any, most_bytes: int
) -> None:
    for bound in ("streaming.overview.MAX_BAND_CELLS", "arrays.build.BLOCK_CELLS"):  # bands are small beside the maps
        monkeypatch.setattr(f"attnviz.{bound}", 2**16)
    arrays: Any = {name: np.zeros((2, 3000, 3000), dtype)}
    np.savez_compressed(tmp_path / "a.npz", **arrays)
    tracemalloc.start()
    try:
        [maps] = read_arrays(tmp_path / "a.npz").maps
        for head in maps.heads:
            maps.overview((head,), 30, 20, slice(0, 3000), slice(0, 3000))
        assert tracemalloc.get_traced_memory()[1] < (most_bytes + 0.5) * arrays[name].size
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("dtype", "needed"), [(np.float32, 4), (np.float16, 2 + 4), (bool, 1 + 4)])
@pytest.mark.parametrize("suffix", [".npy", ".npz", ".safetensors"])
def test_memory_of_arrays_is_told_by_headers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, dtype: Any, needed: int
) -> None:
    path, cells = tmp_path / f"a{suffix}", np.broadcast_to(np.eye(100, dtype=dtype), (5, 100, 100))
    if suffix == ".safetensors":
        save_file({"weights": torch.from_numpy(cells.copy())}, path)
    else:
        np.save(path, cells) if suffix == ".npy" else np.savez_compressed(path, weights=cells)
    for free_bytes in (int(needed * cells.size * 0.99), int(needed * cells.size * 1.01)):
        monkeypatch.setattr("attnviz.base.machine.available_memory", lambda: free_bytes)  # noqa: B023
        if free_bytes > needed * cells.size:
            assert read_arrays(path).maps[0].heads == (0, 1, 2, 3, 4)
        else:
            with pytest.raises(attnviz.AttnvizError, match=rf"a\{suffix}' would take .*; give fewer heads"):
                read_arrays(path)


def test_products_that_overflow_are_refused() -> None:
    factors = np.full((1, 2, 2), 3e38, np.float32)
    with pytest.raises(attnviz.AttnvizError, match="scores of these queries and keys overflow in float32"):
        read(attnviz.from_arrays(queries=factors, keys=factors))


def test_a_computed_head_that_does_not_fit_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    factors = np.zeros((2, 50, 4), np.float32)
    for recording in (
        attnviz.from_arrays(scores=weights_of(2, 50, 50)),
        attnviz.from_arrays(queries=factors, keys=factors),
    ):
        with monkeypatch.context() as patch:
            patch.setattr("attnviz.base.machine.available_memory", lambda: 9999)
            with pytest.raises(
                attnviz.AttnvizError, match=r"the numbers of another head would take .*choose fewer with"
            ):
                read(recording)
        assert read(recording).shape == (2, 50, 50)


def test_a_shape_that_is_a_lie_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.eye(2))
    path.write_bytes(path.read_bytes().replace(b"(2, 2)", b"(9, 9)"))
    with pytest.raises(attnviz.AttnvizError, match="cannot read"):
        read_arrays(path)


def test_the_array_of_a_file_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "weights.npy", np.full((3, 5, 7), 1 / 7, dtype=np.float32))
    loaded: list[Any] = []
    load = np.load

    def kept_load(*given: Any, **options: Any) -> Any:
        loaded.append(load(*given, **options))
        return loaded[-1]

    monkeypatch.setattr(np, "load", kept_load)
    [maps] = read_arrays(tmp_path / "weights.npy").maps
    assert isinstance(maps, OnDemandMaps)
    assert np.shares_memory(maps.cells[2].weights(slice(0, 5), slice(0, 7)), loaded[0])


def test_float32_of_safetensors_is_mapped_and_other_dtypes_are_read(tmp_path: Path) -> None:
    weights = torch.tensor(weights_of(3, 5, 7))
    for dtype in (torch.float32, torch.float64, torch.float16):
        save_file({"4.weights": weights.to(dtype)}, tmp_path / "a.safetensors")
        [maps] = read_arrays(tmp_path / "a.safetensors").maps
        assert isinstance(maps, OnDemandMaps)
        np.testing.assert_array_equal(maps.weights, weights.to(dtype).float().numpy())
        assert maps.layer == 4
        given = maps.cells[0].weights(slice(0, 5), slice(0, 7))
        assert given.flags.writeable == (dtype is not torch.float32)


def test_python_objects_of_an_npy_file_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([object()]), allow_pickle=True)
    with pytest.raises(attnviz.AttnvizError, match="numpy did not write it, or it holds Python objects"):
        read_arrays(tmp_path / "a.npy")
