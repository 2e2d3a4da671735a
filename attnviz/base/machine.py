"""The devices and number types of this machine that torch can compute on."""

import re
from typing import TYPE_CHECKING

from attnviz.base.errors import AttnvizError, known_names

if TYPE_CHECKING:
    import torch

MIN_FREE_MEMORY = 2**31  # bytes of an accelerator, for pooling there
NO_MEMORY = r"can(?:no|')t allocate memory|out of memory|bad_alloc|failed to map segment"  # as libraries say it
MIN_ADDRESS_SPACE = 750 * 2**20  # bytes, of a process that imports torch for the processor
DTYPES = ("float32", "float64", "bfloat16", "float16")


def refuse_unknown_device(name: str) -> None:
    """Raises AttnvizError where no machine has such a device; needs no torch."""
    if not re.fullmatch(r"auto|cpu|mps|cuda(:\d{1,3})?", name, re.ASCII):
        raise AttnvizError(f"unknown device {name!r}; auto, cpu, cuda, cuda:N or mps works")


def refuse_unknown_dtype(name: str) -> None:
    """Raises AttnvizError where the number type is not one that attention is computed in."""
    if name not in DTYPES:
        raise AttnvizError(f"unknown dtype {name!r}; {known_names(DTYPES)} works")


def find_device(name: str) -> "torch.device":
    """The device of that name; ``auto`` takes CUDA, then MPS, then the CPU.

    Raises:
        AttnvizError: if this machine lacks it, naming those it has.
    """
    import torch

    refuse_unknown_device(name)
    present = device_names()
    if name == "auto":
        return torch.device(present[0])
    if (f"{name}:0" if name == "cuda" else name) not in present:
        raise AttnvizError(f"no device {name!r} on this machine; it has {known_names(present)}")
    return torch.device(name)


def device_names() -> list[str]:
    """The devices of this machine, the one that ``auto`` takes first."""
    import torch

    names = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        names.append("mps")
    return [*names, "cpu"]


def device_with_room(name: str) -> str:
    """The device where it is CUDA and has memory free to pool in; else the processor."""
    if not name.startswith("cuda"):
        return "cpu"
    import torch

    return name if torch.cuda.mem_get_info(name)[0] >= MIN_FREE_MEMORY else "cpu"


def describe_devices() -> list[tuple[str, str]]:
    """Each device and what it is."""
    refuse_little_memory()
    import platform

    import torch

    described = []
    for name in device_names():
        if name.startswith("cuda"):
            properties = torch.cuda.get_device_properties(name)
            described.append((name, f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB"))
        else:
            what = "Apple GPU" if name == "mps" else f"{torch.get_num_threads()} threads"
            described.append((name, f"{platform.machine()}, {what}"))
    return described


def refuse_little_memory() -> None:
    """Raises AttnvizError where the process may take less memory than torch does: its C++ would abort the process."""
    try:
        import resource
    except ImportError:  # Windows has no such limits
        return
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < MIN_ADDRESS_SPACE:
        raise AttnvizError(
            f"torch needs more than the {limit / 2**20:.0f} MiB of memory that this process may take; "
            f"ulimit -v {MIN_ADDRESS_SPACE // 2**10} works, and a saved recording needs no torch"
        )


def lacks_memory(error: BaseException) -> bool:
    """Whether the error says that there is no memory left: Python's, numpy's, torch's, or the dynamic linker's."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError | ImportError) and re.search(NO_MEMORY, str(error), re.IGNORECASE) is not None
    )


def available_memory() -> int | None:
    """Bytes of main memory that this process can still take, or ``None`` where the system does not say.

    The least of what the machine has, what is left to its control groups (a container's limits), and what the limits of
    the process (``ulimit -v``, ``ulimit -d``) leave.
    """
    known = [free for free in (_machine_memory(), *_group_memory(), *_process_memory()) if free is not None]
    return max(min(known), 0) if known else None


def refuse_without_room(needed: int, what: str, works: str) -> None:
    """Raises AttnvizError where something would take more memory than is free.

    Args:
        needed: bytes that it would take.
        what: the subject of the sentence, as ``a text of 9 tokens``.
        works: what would fit, as ``a shorter text works``.
    """
    free = available_memory()
    if free is not None and needed > free:
        raise AttnvizError(
            f"{what} would take {needed / 1e9:.1f} GB of memory and {free / 1e9:.1f} GB is free; {works}"
        )


def _machine_memory() -> int | None:
    import os

    free = _fields("/proc/meminfo").get("MemAvailable")
    if free is not None:
        return free * 1024
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _group_memory(root: str = "/sys/fs/cgroup", groups: str = "/proc/self/cgroup") -> list[int]:
    """What each control group that this process is in has left, and those that these are in (versions 2 and 1)."""
    left = []
    for line in _lines(groups):
        _, controllers, path = line.rstrip().split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        folder = f"{root}/memory" if controllers else root
        limit, used = ("limit_in_bytes", "usage_in_bytes") if controllers else ("max", "current")
        parts = [part for part in path.split("/") if part and part != ".."]
        for count in range(len(parts) + 1):
            group = "/".join([folder, *parts[:count]])
            most, taken = _number(f"{group}/memory.{limit}"), _number(f"{group}/memory.{used}")
            if most is not None and taken is not None:
                reclaimed = _fields(f"{group}/memory.stat").get("inactive_file", 0)  # of files, which make room
                left.append(most - taken + reclaimed)
    return left


def _process_memory() -> list[int]:
    """What the limits of this process's address space and data leave it."""
    try:
        import resource
    except ImportError:  # Windows has no such limits
        return []
    status = _fields("/proc/self/status")
    left = []
    for limit, held in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
        most = resource.getrlimit(limit)[0]
        if most != resource.RLIM_INFINITY:
            left.append(most - status.get(held, 0) * 1024)
    return left


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.readlines()
    except OSError:
        return []


def _number(path: str) -> int | None:
    """The number in a file; ``None`` where there is none, such as ``max``."""
    text = "".join(_lines(path)).strip()
    return int(text) if text.isdecimal() else None


def _fields(path: str) -> dict[str, int]:
    """The numbers of a file of lines such as ``VmSize:  123 kB``, by their names."""
    fields = (line.replace(":", " ").split() for line in _lines(path))
    return {field[0]: int(field[1]) for field in fields if len(field) > 1 and field[1].isdecimal()}
