"""Recordings that version 0.1.0 wrote, of every kind of maps, are read, and written again byte for byte."""

from pathlib import Path

import pytest

from attnviz.maps.saved import load, save

FILES = sorted((Path(__file__).parent / "data").glob("*.safetensors"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_of_the_first_version_is_written_again_byte_for_byte(file: Path, tmp_path: Path) -> None:
    save(load(file), tmp_path / file.name)
    assert (tmp_path / file.name).read_bytes() == file.read_bytes()
