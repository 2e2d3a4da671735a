"""Recordings that version 0.1.0 wrote, of every kind of maps, are read, and written again as they are, with checksums.

The format is the same: 0.1.0 reads the new files too, since it takes from a header what it knows.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from attnviz.maps.saved import load, save

FILES = sorted((Path(__file__).parent / "data").glob("*.safetensors"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_of_the_first_version_is_written_again_with_checksums_alone_added(file: Path, tmp_path: Path) -> None:
    save(load(file), tmp_path / file.name)
    old, new = parts(file), parts(tmp_path / file.name)
    about = json.loads(new[0]["__metadata__"]["attnviz"])
    assert sorted(about.pop("crc32")) == sorted(new[0].keys() - {"__metadata__"})
    new[0]["__metadata__"]["attnviz"] = json.dumps(about)
    assert new == old


def parts(file: Path) -> tuple[dict[str, Any], bytes]:
    """The header of a safetensors file, and the bytes of its arrays."""
    content = file.read_bytes()
    stop = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:stop]), content[stop:]
