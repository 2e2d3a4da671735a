"""Recordings come back to the bit, and what is no recording is refused."""

import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import attnviz.base.tensor_file
from attnviz.base.errors import AttnvizError
from attnviz.cli.commands import main
from attnviz.maps.cell_maps import DenseMaps
from attnviz.maps.recording import Recording
from attnviz.maps.saved import load, save
from attnviz.media.text import Text
from attnviz.render.formats import TERMINAL, options_for_medium
from attnviz.report.build import build_report
from attnviz.report.picture.options import ReportOptions
from attnviz.text.groups import Groups
from attnviz.text.tokens import Tokens, tokenize
from tests.conftest import HEADS, KEYS, QUERIES, dense_maps
from tests.maps.examples import factored
from tests.streams import Streams

pytestmark = pytest.mark.slow

STORED = sorted((Path(__file__).parent / "data").glob("*.safetensors"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
LINES = st.text(st.sampled_from("ab .☃é</1\u05d0"), max_size=8)


def assert_same(one: Any, other: Any) -> None:
    """Equal to the bit, arrays and what holds them included."""
    if isinstance(one, np.ndarray):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert one.tobytes() == other.tobytes()
    elif isinstance(one, dict) and all(isinstance(each, Groups) for each in one.values()):
        assert_same(tuple(one.items()), tuple(other.items()))
    elif isinstance(one, Recording | DenseMaps | Tokens | Groups):
        assert type(one) is type(other)
        for field in fields(one):
            assert_same(getattr(one, field.name), getattr(other, field.name))
    elif isinstance(one, tuple):
        assert len(one) == len(other)
        for mine, theirs in zip(one, other, strict=True):
            assert_same(mine, theirs)
    else:
        assert type(one) is type(other)
        assert one == other


def rewrite(path: Path, **changes: Any) -> None:
    """Changes tensors (by name) and the header (by the function ``header``) of a recording's file."""
    tensors = safetensors.numpy.load_file(path)
    with safetensors.safe_open(str(path), framework="numpy") as file:
        header = json.loads(file.metadata()["attnviz"])
    edit = changes.pop("header", lambda header: header)
    tensors |= {name.replace("__", "."): value for name, value in changes.items()}
    tensors = {name: value for name, value in tensors.items() if value is not None}
    header = edit(header)
    if isinstance(header, dict):
        header.pop("crc32", None)  # what is changed on purpose is to be refused for what it is
    text = header if isinstance(header, str) else json.dumps(header)
    safetensors.numpy.save_file(tensors, path, metadata={"attnviz": text})


@pytest.fixture
def file(recording: Recording, tmp_path: Path) -> Path:
    """A recording's file."""
    path = tmp_path / "run.safetensors"
    save(recording, path)
    return path


@contextmanager
def full_disk() -> Iterator[None]:
    """No file can grow beyond 1,000 bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@st.composite
def recordings(draw: st.DrawFn) -> Recording:
    queries, keys, heads = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    floats = arrays.arrays(np.float32, (heads, queries, keys), elements=st.floats(width=32))
    tokens = [
        replace(
            Tokens.numbered(count),
            media=(Text(draw(st.text(max_size=5))),),
            labels=tuple(draw(LINES) for _ in range(count)),
            groups={"turns": Groups(draw(arrays.arrays(np.int64, count, elements=st.integers(-1, 1))), ("you", "me"))},
        )
        for count in (queries, keys)
    ]
    maps = [
        DenseMaps(
            layer=layer,
            module=draw(LINES),
            heads=tuple(draw(st.permutations(range(heads)))),
            query_tokens=tokens[0],
            key_tokens=tokens[1],
            kind=draw(st.sampled_from(["self", "cross"])),
            item=draw(st.integers(0, 3)),
            scale=draw(st.none() | st.floats(allow_nan=False)),
            fidelity=draw(st.none() | st.floats(allow_nan=False)),
            tolerance=draw(st.floats(0, 1)),
            scores=draw(floats),
            weights=draw(floats),
            visible=draw(arrays.arrays(np.bool_, (queries, keys))),
        )
        for layer in range(draw(st.integers(1, 2)))
    ]
    return Recording(
        maps=tuple(maps),
        model=draw(LINES),
        untrained=draw(st.booleans()),
        settings=draw(st.dictionaries(st.text(max_size=5), JSON, max_size=3)),
        seed=draw(st.none() | st.integers(0, 2**63 - 1)),
        version=draw(LINES),
        remarks=tuple(draw(st.lists(LINES, max_size=2))),
        advice=tuple(draw(st.lists(LINES, max_size=2))),
        silent_layers=draw(st.dictionaries(st.integers(0, 9), LINES, max_size=2)),
    )


@settings(max_examples=50, deadline=None)
@given(recordings())
def test_recording_read_back_equals_the_one_written(
    tmp_path_factory: pytest.TempPathFactory, recording: Recording
) -> None:
    path = tmp_path_factory.mktemp("files") / "run.safetensors"
    save(recording, path)
    assert_same(recording, replace(load(path), doubts=()))


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        (2.0, ["Warning: this file has weights from 2 to 2, and", "Rows of weights sum to 14; those of a"]),
        (-1.0, ["Warning: this file has weights from -1 to -1, and", "Rows of weights sum to -7; those of a"]),
        (0.0, ["Rows of weights sum to 0; those of a softmax over these keys alone would sum to 1."]),
        (1 / KEYS, []),
    ],
)
def test_weights_that_no_attention_has_are_said(tmp_path: Path, weights: float, says: list[str]) -> None:
    maps = replace(dense_maps(), weights=np.full((HEADS, QUERIES, KEYS), weights, np.float32))
    save(Recording(maps=(maps,), model="m"), tmp_path / "run.safetensors")
    read = load(tmp_path / "run.safetensors")
    assert len(read.doubts) == len(says)
    assert all(doubt.startswith(start) for doubt, start in zip(read.doubts, says, strict=True))
    assert set(read.doubts) <= set(build_report(read, options_for_medium(ReportOptions(), TERMINAL)).remarks)


def test_weights_of_damaged_factors_are_said(in_folder: Path) -> None:
    path = in_folder / "run.safetensors"
    assert main(["show", "Life is short", "--set", "dense=false", "--causal", "-o", path.name]) == 0
    assert load(path).doubts == ()
    rewrite(path, maps__0__logsumexp=np.full((4, 3), -3, np.float32))
    assert any(doubt.startswith("Rows of weights sum to") for doubt in load(path).doubts)


def test_labels_of_any_script_come_back(tmp_path: Path) -> None:
    tokens = tokenize("a\tb שלום 👩‍👩‍👧 e\u0301 \x1b[31m $x$")
    maps = replace(dense_maps(), key_tokens=tokens.first(KEYS))
    save(Recording(maps=(maps,), model="m"), tmp_path / "run.safetensors")
    assert_same(maps, load(tmp_path / "run.safetensors").maps[0])


def test_file_is_what_safetensors_itself_reads(file: Path, recording: Recording) -> None:
    tensors = safetensors.numpy.load_file(file)
    maps = recording.maps[1]
    assert isinstance(maps, DenseMaps)
    np.testing.assert_array_equal(tensors["maps.1.scores"], maps.scores)
    np.testing.assert_array_equal(tensors["tokens.1.ids"], maps.key_tokens.ids)


def test_same_recording_gives_same_bytes(file: Path, recording: Recording, tmp_path: Path) -> None:
    save(recording, tmp_path / "again.safetensors")
    assert file.read_bytes() == (tmp_path / "again.safetensors").read_bytes()


@pytest.mark.parametrize("stored", STORED, ids=lambda stored: stored.stem)
def test_stored_recordings_of_every_kind_of_maps_are_read_and_written_alike(stored: Path, tmp_path: Path) -> None:
    save(load(stored), tmp_path / stored.name)
    assert (tmp_path / stored.name).read_bytes() == stored.read_bytes()


def test_maps_are_read_from_the_file_only_when_used(file: Path) -> None:
    opened = load(file).maps[0]
    assert isinstance(opened, DenseMaps)
    assert not opened.scores.flags.owndata
    assert not opened.scores.flags.writeable
    assert opened.scores.flags.aligned


def test_drawing_a_saved_recording_imports_neither_torch_nor_transformers(file: Path) -> None:
    script = (
        "import sys; from attnviz.cli.commands import main; code = main(['show', sys.argv[1], '--ascii']);"
        "sys.exit(code or bool({'torch', 'transformers', 'tokenizers', 'matplotlib'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", script, str(file)], check=True, capture_output=True)


def unequal_silent_layers(header: dict[str, Any]) -> dict[str, Any]:
    header["recording"] |= {"silent_layers": [0, 2], "silent_contents": ["linear attention"]}
    return header


def labelled(header: dict[str, Any]) -> dict[str, Any]:
    header["tokens"][0]["groups"]["words"] = ["one"]
    return header


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"maps__0__scores": np.zeros((HEADS, QUERIES, KEYS - 1), np.float32)}, r"maps\.0\.scores is F32 of shape"),
        ({"maps__0__scores": np.zeros((HEADS, KEYS, QUERIES), np.float32)}, r"expected F32 of shape \(3, 5, 7\)"),
        ({"maps__1__weights": np.zeros((HEADS, QUERIES, KEYS))}, r"maps\.1\.weights is F64 of shape"),
        ({"maps__1__weights": None}, r"maps\.1\.weights is missing"),
        ({"maps__0__visible": np.ones((QUERIES, KEYS), np.int8)}, r"maps\.0\.visible is I8"),
        ({"tokens__0__ids": np.zeros(QUERIES, np.int32)}, r"tokens\.0\.ids is I32"),
        ({"tokens__0__places": np.full((QUERIES, 2), 9)}, "tokens outside their text"),
        ({"tokens__0__places": np.full((QUERIES, 2), -1)}, "tokens outside their text"),
        ({"tokens__0__places": np.full((QUERIES, 4), 0)}, r"tokens\.0\.places is I64 of shape \(5, 4\)"),
        ({"tokens__0__medium": np.full(QUERIES, 1)}, "tokens of media that are missing"),
        ({"tokens__0__medium": np.full(QUERIES, -2)}, "tokens of media that are missing"),
        ({"tokens__1__groups.words": None}, r"tokens\.1\.groups\.words is missing"),
        (
            {"tokens__0__groups.words": np.ones(QUERIES, int), "header": labelled},
            "groups of 'words' that have no label",
        ),
        ({"header": lambda header: header | {"format": 3}}, "reads format 2; try a newer attnviz"),
        ({"header": lambda header: header | {"format": 1}}, "has format 1, but this attnviz reads format 2; record it"),
        ({"header": lambda _: "{"}, "header is not JSON, or nested too deeply"),
        ({"header": lambda _: "[" * 100_000}, "header is not JSON, or nested too deeply"),
        ({"header": lambda _: '{"a":' * 500 + "1" + "}" * 500}, "header is not JSON, or nested too deeply"),
        ({"header": lambda _: []}, "is not a JSON object"),
        ({"header": unequal_silent_layers}, "names 2 silent layers, but 1 contents of them"),
        ({"header": lambda _: {}}, "no int 'format'"),
        ({"header": lambda header: header | {"format": True}}, "no int 'format'"),
        ({"header": lambda header: header | {"format": 10**30}}, "'format' out of range"),
        ({"header": lambda header: header | {"maps": []}}, "nothing was recorded"),
        ({"header": lambda header: header | {"maps": [3]}}, "is not a JSON object"),
        ({"header": lambda header: header | {"tokens": {}}}, "no list 'tokens'"),
        ({"header": lambda header: header | {"media": []}}, "tokens of media that are missing"),
        ({"header": lambda header: header | {"recording": {}}}, "no str 'model'"),
    ],
)
def test_file_that_is_no_sound_recording_is_refused(file: Path, changes: dict[str, Any], message: str) -> None:
    rewrite(file, **changes)
    with pytest.raises(AttnvizError, match=message) as refused:
        load(file)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("part", "name", "value", "message"),
    [
        ("maps", "layer", -1, "'layer' out of range"),
        ("maps", "layer", 1.0, "no int 'layer'"),
        ("maps", "layer", 10**400, "'layer' out of range"),
        ("maps", "heads", [0, 1, 1], "repeat a number"),
        ("maps", "heads", [], "are empty"),
        ("maps", "heads", [0, 1, "2"], "not whole numbers"),
        ("maps", "kind", "sideways", "unknown kind 'sideways'"),
        ("maps", "class", "later", "class 'later'"),
        ("maps", "query_tokens", 4, "'query_tokens' out of range"),
        ("maps", "key_tokens", -1, "'key_tokens' out of range"),
        ("maps", "module", "\x1b[31m", "control characters in 'module'"),
        ("maps", "scale", "big", "no int 'scale'"),
        ("tokens", "labels", ["q"] * 4, r"ids is I64 of shape \(5,\), expected I64 of shape \(4,\)"),
        ("tokens", "labels", ["q"] * 4 + ["\x1b[31m"], "'labels' that are not texts, or hold control characters"),
        ("tokens", "labels", ["q"] * 4 + [1], "'labels' that are not texts"),
        ("tokens", "media", [], "'media' that are empty"),
        ("tokens", "media", [7], "tokens of media that are missing"),
        ("tokens", "groups", None, "no dict 'groups'"),
        ("tokens", "groups", {"words": "one"}, "no list 'words'"),
        ("tokens", "groups", {"\x1b[31m": []}, "groups whose name is missing, too long or not printable"),
        ("media", "content", "\ud800", "not valid UTF-8"),
        ("media", "content", None, "no str 'content'"),
        ("media", "medium", "smell", "a medium of the unknown kind 'smell'"),
        ("recording", "model", "a\nb", "control characters in 'model'"),
        ("recording", "seed", "0", "no int 'seed'"),
        ("recording", "settings", [], "no dict 'settings'"),
        ("recording", "settings", {"alignment_heads": 5}, "has alignment_heads 5; give a list of up to 10000"),
        ("recording", "settings", {"alignment_heads": [[0, 1]] * 10**5}, "has alignment_heads"),
        ("recording", "settings", {"dtype": ["float32"]}, "has dtype"),
        ("recording", "settings", {"model": 7}, "has model 7; give a text"),
        ("recording", "settings", {"seed": "a"}, "has seed 'a'; give a whole number"),
        ("recording", "settings", {"dropout": {}}, "has dropout"),
        ("recording", "settings", {"causal": "yes"}, "has causal 'yes'; give true or false"),
        ("recording", "untrained", 1, "no bool 'untrained'"),
        ("recording", "remarks", ["\x07"], "'remarks' that are not texts, or hold control characters"),
        *(("factored", "softcap", cap, r"soft cap of -?[\d.]+; a soft cap is above 0") for cap in (0, 0.0, -1.5)),
    ],
)
def test_hostile_header_is_refused(file: Path, part: str, name: str, value: Any, message: str) -> None:
    if part == "factored":
        save(Recording(maps=(factored(softcap=2.0),), model="a test"), file, force=True)

    def edit(header: dict[str, Any]) -> dict[str, Any]:
        entry = header["maps" if part == "factored" else part]
        (entry[0] if isinstance(entry, list) else entry)[name] = value
        return header

    rewrite(file, header=edit)
    with pytest.raises(AttnvizError, match=message):
        load(file)


def test_bool_of_other_bytes_is_refused(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] = 7
    file.write_bytes(content)
    with pytest.raises(AttnvizError, match="neither true nor false"):
        load(file)


@pytest.mark.parametrize("length", [0, 1, 8, 100, -1, -500])
def test_file_cut_off_anywhere_is_refused(file: Path, length: int) -> None:
    file.write_bytes(file.read_bytes()[:length])
    with pytest.raises(AttnvizError, match="is not a safetensors file, or is cut off"):
        load(file)


@pytest.mark.parametrize("size", [2**63, 2**40, 10**8])
def test_header_of_absurd_size_is_refused(file: Path, size: int) -> None:
    file.write_bytes(size.to_bytes(8, "little") + file.read_bytes()[8:])
    with pytest.raises(AttnvizError, match="is not a safetensors file, or is cut off"):
        load(file)


def test_tensor_of_absurd_size_is_refused(file: Path) -> None:
    content = file.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header["maps.0.scores"] |= {"shape": [2**31, 2**31], "data_offsets": [0, 2**64 - 4]}
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])
    with pytest.raises(AttnvizError, match="is not a safetensors file, or is cut off"):
        load(file)


def test_weights_of_a_model_are_told_from_a_recording(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    safetensors.numpy.save_file({"w": np.zeros(3, np.float32)}, path)
    with pytest.raises(AttnvizError, match="holds tensors but no recording; give a file that attnviz wrote"):
        load(path)


def test_missing_file_and_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AttnvizError, match="there is no file"):
        load(tmp_path / "none.safetensors")
    with pytest.raises(AttnvizError, match="is not a file"):
        load(tmp_path)


@pytest.mark.parametrize("number", range(0, 100, 7))
def test_a_flipped_bit_is_found_when_the_file_is_opened(file: Path, number: int) -> None:
    content = bytearray(file.read_bytes())
    start = 8 + int.from_bytes(content[:8], "little")
    content[start + (len(content) - start) * number // 100] ^= 0x10
    file.write_bytes(content)
    with pytest.raises(AttnvizError, match=r"is damaged: the numbers of .* are not those that were written|bytes that"):
        load(file)


def test_a_large_file_is_opened_without_reading_its_numbers(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = bytearray(file.read_bytes())
    content[-QUERIES * KEYS * 3] ^= 1  # of what is visible: a byte that is still true or false
    file.write_bytes(content)
    monkeypatch.setattr(attnviz.base.tensor_file, "MAX_CHECKED_BYTES", 1000)
    load(file)


@pytest.mark.parametrize("command", ["show", "heads", "compare"])
def test_no_number_is_printed_of_a_large_file_that_is_damaged(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    content = bytearray(file.read_bytes())
    content[-QUERIES * KEYS * 3] ^= 1
    file.write_bytes(content)
    monkeypatch.setattr(attnviz.base.tensor_file, "MAX_CHECKED_BYTES", 1000)
    assert main([command, str(file), *([str(file)] if command == "compare" else []), "--json"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "is damaged: the numbers of" in printed.err


def test_numbers_of_pooled_maps_are_refused_before_any_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    pooled = Path(__file__).parent / "data" / "pooled.safetensors"
    assert main(["show", str(pooled), "--json"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "its single cells are not known" in printed.err


NASTY = st.text(
    st.sampled_from('ab \n\t\x00\x1b\x9b\u202e\u2028\ufeff\u200d\u0301\U000e0041é☃\ud800\udfff<&"\\'), max_size=6
)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_whatever_is_written_is_read_again(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("files") / "run.safetensors"
    try:
        maps = replace(
            dense_maps(),
            module=data.draw(NASTY),
            layer=data.draw(st.sampled_from([0, 0, -1, 10**9, 2**70])),
            scale=data.draw(st.sampled_from([None, 1, 0.5, -3, np.float64(2), float("nan")])),
            query_tokens=replace(
                Tokens.numbered(QUERIES),
                media=(Text(data.draw(NASTY)),),
                labels=tuple(data.draw(NASTY) for _ in range(QUERIES)),
                groups={data.draw(NASTY): Groups(np.zeros(QUERIES, dtype=np.int64), (data.draw(NASTY),))},
            ),
        )
        hostile = Recording(
            maps=(maps,),
            model=data.draw(NASTY),
            version=data.draw(NASTY),
            remarks=(data.draw(NASTY),),
            settings=data.draw(st.dictionaries(NASTY, JSON | NASTY, max_size=2)),
            seed=data.draw(st.sampled_from([None, 0, -1, 2**64])),
        )
        save(hostile, path)
    except AttnvizError:
        assert not path.exists()
    else:
        again = load(path)
        assert (again.model, again.remarks) == (hostile.model, hostile.remarks)
        assert json.dumps(again.settings) == json.dumps(hostile.settings)  # as JSON, two halves are one character


def test_names_that_cannot_be_printed_are_written_out(tmp_path: Path) -> None:
    maps = dense_maps()
    labels = (*maps.key_tokens.labels[1:], "\x1b[31m")
    tokens = replace(maps.key_tokens, labels=labels)
    unsafe = Recording(maps=(replace(maps, key_tokens=tokens, module="a\n\x9b"),), model="\u202em", remarks=("\x07",))
    save(unsafe, tmp_path / "run.safetensors")
    read = load(tmp_path / "run.safetensors")
    assert (read.model, read.remarks) == (r"\u202em", (r"\x07",))
    assert (read.maps[0].module, read.maps[0].key_tokens.labels[-1]) == (r"a\n\x9b", r"\x1b[31m")


def test_disk_that_fills_leaves_the_earlier_file_untouched(recording: Recording, tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    path.write_text("earlier")
    with full_disk(), pytest.raises(AttnvizError, match=r"cannot write .*: File too large"):
        save(recording, path, force=True)
    assert path.read_text() == "earlier"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf", "csv", "json", "npz", "safetensors"])
def test_disk_that_fills_is_one_line_for_every_format(
    suffix: str, in_folder: Path, file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    target = in_folder / f"out.{suffix}"
    target.write_text("earlier")
    command = ["show", "Life is short"] if suffix == "safetensors" else ["show", str(file)]
    with full_disk():
        code = main([*command, "-o", target.name, "--force"])
    assert code == 1
    error = capfd.readouterr().err
    assert error.count("\n") == 1
    assert "cannot write" in error
    assert target.read_text() == "earlier"


def test_recordings_written_by_the_command_line_are_shown_and_compared(in_folder: Path, shell: Streams) -> None:
    plain, causal = ("a.safetensors", "b.safetensors")
    for path, options in ((plain, ()), (causal, ("--causal",))):
        assert shell.run("show", "Life is short", "--set", "num-layers=2", *options, "-o", path) == f"{path}\n"
    assert main(["show", plain, "--heads", "1.3", "-o", "saved.csv"]) == 0
    assert main(["show", "Life is short", "--set", "num-layers=2", "--heads", "1.3", "-o", "fresh.csv"]) == 0
    assert Path("saved.csv").read_bytes() == Path("fresh.csv").read_bytes()
    assert main(["compare", plain, causal, "-o", "one.csv"]) == 0
    assert main(["compare", plain, "--with", causal, "-o", "other.csv"]) == 0
    assert Path("one.csv").read_bytes() == Path("other.csv").read_bytes()
