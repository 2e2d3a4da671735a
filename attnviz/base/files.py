"""Writes files atomically: a file appears when it is complete, or not at all."""

import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from attnviz.base.errors import AttnvizError, option
from attnviz.base.progress import working
from attnviz.base.signals import cleanup_on_signals

if TYPE_CHECKING:
    from zipfile import ZipInfo

TEMPORARY_PREFIX = ".attnviz-"  # of the name of an unfinished file, which lies in the folder of its target
ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip archive can store: equal contents give equal bytes
UNIX = 3  # the system that members of archives name, on every system
LEFTOVER_SECONDS = 60.0  # since a file was last written; a younger one may not be locked yet


@contextmanager
def output_file(path: Path | None, force: bool = False) -> Iterator[IO[bytes]]:
    """Opens a file for writing with `atomic_file`, or standard output if the path is ``None``."""
    with standard_output() if path is None else atomic_file(path, force) as file:
        yield file


@contextmanager
def atomic_file(path: Path, force: bool = False) -> Iterator[IO[bytes]]:
    """Opens a temporary file for writing, and renames it to ``path`` when it is complete and on disk.

    An error, or a signal that ends the process, removes the temporary file. ``force`` replaces an existing file, or the
    file that a link leads to. The new file has the mode and, if permitted, the owner of the replaced one.
    """
    target, replaced_status = _checked_target(path, force)
    temporary_path = target.with_name(f"{TEMPORARY_PREFIX}{os.urandom(8).hex()}")

    def discard() -> None:
        with suppress(OSError):
            os.unlink(temporary_path)

    _remove_leftovers(target.parent)

    def create(name: str, flags: int) -> int:
        # 0o666 leaves access to the umask; 0o600 is the owner alone, until `_copy_access`
        return os.open(name, flags, 0o666 if replaced_status is None else 0o600)

    with cleanup_on_signals(discard):
        try:
            with open(temporary_path, "xb", opener=create) as file:
                _take_lock(file.fileno())
                if replaced_status is not None:
                    if hasattr(os, "chown"):
                        with suppress(OSError):
                            os.chown(temporary_path, replaced_status.st_uid, replaced_status.st_gid)
                    os.chmod(temporary_path, stat.S_IMODE(replaced_status.st_mode) & 0o777)  # read, write and execute
                with working(f"writing {target.name}"):
                    yield file
                file.flush()
                os.fsync(file.fileno())
            _rename_to_target(temporary_path, target, force)
        except FileExistsError as error:
            raise _exists_error(path) from error
        except OSError as error:
            raise _write_error(path, error) from error
        finally:
            discard()


def _remove_leftovers(folder: Path) -> None:
    """Removes the temporary files in a folder whose writers were killed: a living writer has locked its file."""
    with suppress(OSError):
        for path in folder.glob(f"{TEMPORARY_PREFIX}{'[0-9a-f]' * 16}"):
            with suppress(OSError), path.open("rb") as file:
                age = time.time() - os.fstat(file.fileno()).st_mtime
                if age > LEFTOVER_SECONDS and _take_lock(file.fileno()):
                    path.unlink()


def _take_lock(descriptor: int) -> bool:
    """Locks a file until it is closed; False if another process has locked it, or if the system has no locks."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True


@contextmanager
def standard_output() -> Iterator[IO[bytes]]:
    """Yields standard output as a binary file, and flushes it at the end."""
    refuse_closed_output()
    try:
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise AttnvizError(f"cannot write all of the output: {error.strerror or error}; it is incomplete") from error


def refuse_closed_output() -> None:
    """Raises AttnvizError if standard output is closed."""
    if sys.stdout is None:
        raise AttnvizError("standard output is closed; use -o FILE to write a file")


def refuse_target(path: Path, force: bool = False) -> None:
    """Raises AttnvizError if no file can be written to the path, or, without ``force``, if a file or link is there."""
    _checked_target(path, force)


def _checked_target(path: Path, force: bool) -> tuple[Path, os.stat_result | None]:
    """Returns the path with links resolved, and the status of the file there, or ``None`` if there is no file."""
    try:
        is_link = path.is_symlink()
        target = Path(os.path.realpath(path)) if is_link else path
        status = os.stat(target)
    except (FileNotFoundError, NotADirectoryError):
        status = None
    except (OSError, ValueError) as error:  # ValueError: the path has a null character
        raise _write_error(path, error) from error
    if status is not None and stat.S_ISDIR(status.st_mode):
        raise AttnvizError(f"{str(path)!r} is a folder; give the name of a file in it")
    if status is not None and not stat.S_ISREG(status.st_mode):
        raise AttnvizError(f"{str(path)!r} is a pipe or a device; give the name of a file")
    if not target.parent.is_dir():
        raise AttnvizError(f"no folder {str(target.parent)!r}; create it, or choose a folder that exists")
    if (status is not None or is_link) and not force:
        raise _exists_error(path)
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise AttnvizError(f"cannot write to the folder {str(target.parent)!r}; choose one where you may write")
    return target, status


def _exists_error(path: Path) -> AttnvizError:
    """Returns the refusal to replace the file at ``path``."""
    return AttnvizError(f"{str(path)!r} exists; {option('force', value=True)} replaces it")


def _write_error(path: Path, error: OSError | ValueError) -> AttnvizError:
    """Returns the refusal for an error that writing to ``path`` raised."""
    return AttnvizError(f"cannot write {str(path)!r}: {getattr(error, 'strerror', None) or error}")


def _rename_to_target(temporary: Path, target: Path, force: bool) -> None:
    """Renames a complete file to its target, and flushes the folder; replaces a file only if ``force`` is True."""
    if force:
        os.replace(temporary, target)
    else:
        try:
            os.link(temporary, target)
        except FileExistsError:
            raise
        except OSError:  # the file system has no hard links
            os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY))  # taken, before it is replaced
            try:
                os.replace(temporary, target)
            except OSError:
                os.unlink(target)
                raise
    with suppress(OSError):  # not every system can flush a folder
        descriptor = os.open(target.parent, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def undated_member(name: str, compression: int = 0) -> "ZipInfo":
    """Returns the header of a member of a zip archive, which is the same on every system and at any time.

    Args:
        compression: a method of ``zipfile``; 0 stores the member as it is.
    """
    from zipfile import ZipInfo  # which takes longer to import than a short command

    member = ZipInfo(name, ZIP_EPOCH)
    member.create_system = UNIX
    member.compress_type = compression
    return member
