"""The memory that can still be taken is the least that the machine, its control groups and the process leave."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from attnviz.base.errors import AttnvizError
from attnviz.base.machine import _group_memory, available_memory, refuse_without_memory


def write(path: Path, text: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def test_control_groups_of_version_2_leave_what_any_of_them_leaves(tmp_path: Path) -> None:
    write(tmp_path / "groups", "0::/a/b")
    write(tmp_path / "a/memory.max", 1000)
    write(tmp_path / "a/memory.current", 300)
    write(tmp_path / "a/memory.stat", "anon 200\ninactive_file 50")
    write(tmp_path / "a/b/memory.max", "max")
    write(tmp_path / "a/b/memory.current", 7)
    assert _group_memory(str(tmp_path), str(tmp_path / "groups")) == [750]


def test_control_groups_of_version_1_are_known(tmp_path: Path) -> None:
    write(tmp_path / "groups", "5:cpu:/x\n4:memory:/a\n0::/")
    write(tmp_path / "memory/memory.limit_in_bytes", 2000)
    write(tmp_path / "memory/memory.usage_in_bytes", 500)
    write(tmp_path / "memory/a/memory.limit_in_bytes", 900)
    write(tmp_path / "memory/a/memory.usage_in_bytes", 400)
    assert _group_memory(str(tmp_path), str(tmp_path / "groups")) == [1500, 500]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
def test_limits_of_the_process_count() -> None:
    code = (
        "import resource; from attnviz.base.machine import available_memory\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31)); print(available_memory())"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    free = available_memory()
    assert free is not None
    assert 2**29 < int(run.stdout) <= min(2**31, free + 2**30)
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY


def test_what_takes_more_than_is_free_is_refused_with_both_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnviz.base.machine.available_memory", lambda: 1_500_000_000)
    refuse_without_memory(1_500_000_000, "a text of 9 tokens", "use a shorter text")
    message = "a text of 9 tokens would take 2.5 GB of memory and 1.5 GB is free; use a shorter text"
    with pytest.raises(AttnvizError, match=f"^{message}$"):
        refuse_without_memory(2_500_000_000, "a text of 9 tokens", "use a shorter text")


def test_nothing_is_refused_where_the_system_does_not_say_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnviz.base.machine.available_memory", lambda: None)
    refuse_without_memory(10**30, "a text of 9 tokens", "use a shorter text")
