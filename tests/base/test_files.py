"""A file is written whole or not at all."""

import errno
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from threading import Barrier, Thread

import pytest

from attnviz.base.errors import AttnvizError
from attnviz.base.files import atomic_file, output_file, refuse_target, standard_output
from attnviz.base.progress import active_lines

posix = pytest.mark.skipif(os.name != "posix", reason="needs links, pipes and modes")


def write(path: Path, content: bytes = b"new", force: bool = False) -> None:
    with atomic_file(path, force) as file:
        file.write(content)


def test_file_appears_only_when_it_is_whole(tmp_path: Path) -> None:
    def fail() -> None:
        with atomic_file(tmp_path / "out.bin") as file:
            file.write(b"half")
            assert not (tmp_path / "out.bin").exists()
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_takes_long_to_write_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(sys.stderr, "fileno", lambda: 2)
    with atomic_file(tmp_path / "out.bin"):
        assert active_lines == ["attnviz: writing out.bin …"]
    assert active_lines == []


def test_longest_name_that_a_folder_takes_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("a" * 251 + ".csv")
    write(path, b"x")
    assert path.read_bytes() == b"x"
    with pytest.raises(AttnvizError, match=r"cannot write .*: File name too long"):
        write(tmp_path / ("a" * 252 + ".csv"))
    with pytest.raises(AttnvizError, match=r"cannot write .*: .*null"):
        write(tmp_path / "a\0.csv")


def test_target_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "there.svg").touch()
    for path, message in (
        (tmp_path, "is a folder"),
        (tmp_path / "none" / "x.svg", "no folder"),
        (tmp_path / "there.svg" / "x.svg", "no folder"),
        (tmp_path / "there.svg", "exists; force=True replaces it"),
    ):
        with pytest.raises(AttnvizError, match=message):
            refuse_target(path)
    refuse_target(tmp_path / "there.svg", force=True)


@posix
def test_link_is_followed_and_what_it_leads_to_keeps_its_mode(tmp_path: Path) -> None:
    target, link = tmp_path / "target.svg", tmp_path / "link.svg"
    target.write_bytes(b"old")
    target.chmod(0o640)
    link.symlink_to("target.svg")
    with pytest.raises(AttnvizError, match="exists"):
        write(link)
    write(link, force=True)
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


@posix
def test_link_that_leads_nowhere_or_to_itself_counts_as_existing(tmp_path: Path) -> None:
    dangling, loop, lost = (tmp_path / name for name in ("dangling.svg", "loop.svg", "lost.svg"))
    dangling.symlink_to("nowhere.svg")
    loop.symlink_to("loop.svg")
    lost.symlink_to("no/folder.svg")
    for link, message in ((dangling, "exists"), (loop, "symbolic links"), (lost, "no folder '.*/no'")):
        with pytest.raises(AttnvizError, match=message):
            write(link)
        assert link.is_symlink()
    write(dangling, force=True)
    assert (tmp_path / "nowhere.svg").read_bytes() == b"new"
    assert dangling.is_symlink()


@posix
def test_what_is_no_file_is_never_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.svg"
    os.mkfifo(pipe)
    for path in (pipe, Path(os.devnull)):
        with pytest.raises(AttnvizError, match="is a pipe or a device"):
            write(path, force=True)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@posix
def test_owner_is_kept_where_that_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "theirs.svg"
    path.touch()
    try:
        os.chown(path, 12_345, 54_321)
    except PermissionError:
        pytest.skip("only root gives files away")
    write(path, force=True)
    assert (path.stat().st_uid, path.stat().st_gid) == (12_345, 54_321)


def test_of_two_writers_of_a_new_name_one_wins_and_the_other_is_told(tmp_path: Path) -> None:
    path, both_started, told = tmp_path / "x.csv", Barrier(2), []

    def write_with_the_other(content: bytes) -> None:
        try:
            with atomic_file(path) as file:
                both_started.wait()
                file.write(content)
        except AttnvizError as error:
            told.append(str(error))

    threads = [Thread(target=write_with_the_other, args=(content,)) for content in (b"one", b"two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert told == [f"{str(path)!r} exists; force=True replaces it"]
    assert path.read_bytes() in (b"one", b"two")
    assert list(tmp_path.iterdir()) == [path]


def test_one_wins_on_a_file_system_without_links_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("os.link", refuse)
    path = tmp_path / "x.csv"
    write(path)
    with pytest.raises(AttnvizError, match="exists"), atomic_file(tmp_path / "y.csv"):
        (tmp_path / "y.csv").write_bytes(b"another's")
    assert sorted(each.read_bytes() for each in tmp_path.iterdir()) == [b"another's", b"new"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_disk_that_fails_is_one_line_and_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, call: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    path = tmp_path / "x.csv"
    path.write_bytes(b"old")
    monkeypatch.setattr(f"os.{call}", fail)
    with pytest.raises(AttnvizError, match=f"cannot write .*: {os.strerror(number)}"):
        write(path, force=True)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@posix
@pytest.mark.parametrize("name", ["SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1"])
def test_signal_while_writing_leaves_nothing_and_ends_the_process(tmp_path: Path, name: str) -> None:
    code = (
        "import os, resource, signal, sys; from pathlib import Path; from attnviz.base.files import atomic_file\n"
        "resource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL); signal.signal(signal.SIGQUIT, signal.SIG_DFL)\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "try:\n"
        "    with atomic_file(Path('x.csv')) as file:\n"
        "        file.write(b'half'); assert len(os.listdir()) == 1\n"
        f"        os.kill(os.getpid(), signal.{name})\n"
        "        sys.exit('it went on')\n"
        "except KeyboardInterrupt: os._exit(130)"
    )
    environment = os.environ | {"PYTHONPATH": os.getcwd()}
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=False)
    assert run.returncode == (130 if name == "SIGINT" else -getattr(signal, name))
    assert list(tmp_path.iterdir()) == []


@posix
def test_what_a_killed_writer_left_is_removed_by_the_next_write(tmp_path: Path) -> None:
    def temporary_file() -> Path:
        [path] = (path for path in tmp_path.iterdir() if path.name.startswith(".attnviz-"))
        os.utime(path, (0, 0))  # as if it were old
        return path

    with atomic_file(tmp_path / "slow.csv") as file:
        file.write(b"half")
        living = temporary_file()
        write(tmp_path / "other.csv")
        assert living.exists(), "a file that is being written is nobody's leftover"
    code = (
        "import os, signal; from pathlib import Path; from attnviz.base.files import atomic_file\n"
        "with atomic_file(Path('killed.csv')) as file: os.kill(os.getpid(), signal.SIGKILL)"
    )
    environment = os.environ | {"PYTHONPATH": os.getcwd()}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=False)
    temporary_file()
    (tmp_path / ".attnviz-notes").touch()
    write(tmp_path / "next.csv")
    assert {path.name for path in tmp_path.iterdir()} == {"slow.csv", "other.csv", "next.csv", ".attnviz-notes"}


def test_without_a_path_it_goes_to_standard_output(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    with output_file(None) as file:
        file.write(b"\xff")
    assert capfdbinary.readouterr().out == b"\xff"
    monkeypatch.setattr("sys.stdout", None)
    with pytest.raises(AttnvizError, match="standard output is closed; use -o FILE"), output_file(None):
        pass


@pytest.mark.parametrize(
    ("error", "reason"), [(OSError(28, "No space left on device"), "No space left on device"), (OSError("odd"), "odd")]
)
def test_output_that_ends_early_says_why(error: OSError, reason: str) -> None:
    def fail() -> None:
        with standard_output():
            raise error

    with pytest.raises(AttnvizError, match=f"cannot write all of the output: {reason}; it is incomplete"):
        fail()
