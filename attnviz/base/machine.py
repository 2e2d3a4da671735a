"""Finds torch's devices on this machine, and measures free memory."""

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING

from attnviz.base.errors import AttnvizError, option, or_list

if TYPE_CHECKING:
    import torch

MIN_FREE_MEMORY = 2**31  # bytes that an accelerator needs free for pooling
NO_MEMORY = r"can(?:no|')t allocate memory|out of memory|bad_alloc|failed to map segment"  # in libraries' messages
MIN_ADDRESS_SPACE = 750 * 2**20  # bytes that a process needs to import torch for the CPU
DEVICES = ("auto", "cpu", "cuda", "cuda:N", "mps")
DTYPES = ("float32", "float64", "bfloat16", "float16")


def refuse_unknown_device(name: str) -> None:
    """Raises AttnvizError if the name is not one of `DEVICES`; does not import torch."""
    if not re.fullmatch(r"auto|cpu|mps|cuda(:\d{1,3})?", name, re.ASCII):
        raise AttnvizError(f"unknown {option('device')} {name!r}; choose {or_list(DEVICES)}")


def find_device(name: str) -> "torch.device":
    """Returns the torch device of this name; ``auto`` is CUDA if there is any, else MPS, else the CPU."""
    import torch

    refuse_unknown_device(name)
    names_here = _device_names()
    if name == "auto":
        return torch.device(names_here[0])
    if (f"{name}:0" if name == "cuda" else name) not in names_here:
        raise AttnvizError(f"no device {name!r} on this machine; choose {or_list(names_here)}")
    return torch.device(name)


def _device_names() -> list[str]:
    """Returns the names of this machine's devices, first the one that ``auto`` stands for."""
    import torch

    names = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        names.append("mps")
    return [*names, "cpu"]


def pooling_device(name: str) -> str:
    """Returns the device on which maps are pooled: ``name`` if it is CUDA with `MIN_FREE_MEMORY` free, else ``cpu``."""
    if not name.startswith("cuda"):
        return "cpu"
    import torch

    return name if torch.cuda.mem_get_info(name)[0] >= MIN_FREE_MEMORY else "cpu"


def describe_devices() -> list[tuple[str, str]]:
    """Returns the name and a description of each device, such as ``("cpu", "x86_64, 8 threads")``."""
    refuse_little_memory()
    import platform

    import torch

    descriptions = []
    for name in _device_names():
        if name.startswith("cuda"):
            properties = torch.cuda.get_device_properties(name)
            descriptions.append((name, f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB"))
        else:
            details = "Apple GPU" if name == "mps" else f"{torch.get_num_threads()} threads"
            descriptions.append((name, f"{platform.machine()}, {details}"))
    return descriptions


def refuse_little_memory() -> None:
    """Raises AttnvizError if this process may take less memory than torch needs, since torch would abort the process.

    Does nothing on Windows, which has no such limits.
    """
    try:
        import resource
    except ImportError:
        return
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < MIN_ADDRESS_SPACE:
        raise AttnvizError(
            f"torch needs more than the {limit / 2**20:.0f} MiB of memory that this process may take; raise this limit "
            f"with ulimit -v {MIN_ADDRESS_SPACE // 2**10}, or use a saved recording, which needs no torch"
        )


def is_out_of_memory(error: BaseException) -> bool:
    """True if an error of Python, numpy, torch or the dynamic linker means that memory ran out."""
    if isinstance(error, MemoryError):
        return True
    is_library_error = isinstance(error, RuntimeError | ImportError)
    return is_library_error and re.search(NO_MEMORY, str(error), re.IGNORECASE) is not None


def available_memory() -> int | None:
    """Returns the bytes of main memory that this process can still allocate; ``None`` if the system does not tell.

    It is the minimum over the machine, the control groups (limits of a container), and the limits of the process
    (``ulimit -v``, ``ulimit -d``).
    """
    free_bytes = _group_memory()
    free_kilobytes = _fields_of("/proc/meminfo").get("MemAvailable")
    if free_kilobytes is not None:
        free_bytes.append(free_kilobytes * 1024)  # "kB" in /proc are 1024 bytes
    else:  # all of the machine's memory, if only that is known
        with suppress(AttributeError, OSError, ValueError):
            free_bytes.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(ImportError):  # Windows has no limits of address space and data segment
        import resource

        kilobytes_used = _fields_of("/proc/self/status")
        for resource_number, field in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
            limit = resource.getrlimit(resource_number)[0]
            if limit != resource.RLIM_INFINITY:
                free_bytes.append(limit - kilobytes_used.get(field, 0) * 1024)
    return max(min(free_bytes), 0) if free_bytes else None


def refuse_without_memory(needed_bytes: int, what: str, advice: str) -> None:
    """Raises AttnvizError if more memory is needed than is free; does nothing if the free memory is unknown."""
    free_bytes = available_memory()
    if free_bytes is not None and needed_bytes > free_bytes:
        raise AttnvizError(
            f"{what} would take {needed_bytes / 1e9:.1f} GB of memory and {free_bytes / 1e9:.1f} GB is free; {advice}"
        )


def _group_memory(root: str = "/sys/fs/cgroup", groups_file: str = "/proc/self/cgroup") -> list[int]:
    """Returns the free bytes of each control group that limits the memory of this process (versions 2 and 1)."""
    free_bytes = []
    for line in _lines(groups_file):
        _, controllers, path = line.rstrip().split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        folder = f"{root}/memory" if controllers else root
        limit_file, usage_file = ("limit_in_bytes", "usage_in_bytes") if controllers else ("max", "current")
        parts = [part for part in path.split("/") if part and part != ".."]
        for depth in range(len(parts) + 1):
            group = "/".join([folder, *parts[:depth]])
            limit, used_bytes = _number_in(f"{group}/memory.{limit_file}"), _number_in(f"{group}/memory.{usage_file}")
            if limit is not None and used_bytes is not None:
                # The kernel frees inactive pages of files on demand.
                reclaimable = _fields_of(f"{group}/memory.stat").get("inactive_file", 0)
                free_bytes.append(limit - used_bytes + reclaimable)
    return free_bytes


def _lines(path: str) -> list[str]:
    """Returns the lines of a file of the operating system; [] if it cannot be read."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.readlines()
    except OSError:
        return []


def _number_in(path: str) -> int | None:
    """Returns the number in a file; ``None`` if it cannot be read, or its content is no number, such as ``max``."""
    text = "".join(_lines(path)).strip()
    return int(text) if text.isdecimal() else None


def _fields_of(path: str) -> dict[str, int]:
    """Returns the numbers of a file by name, from lines such as ``VmSize: 123 kB``; {} if it cannot be read."""
    lines_of_words = (line.replace(":", " ").split() for line in _lines(path))
    return {words[0]: int(words[1]) for words in lines_of_words if len(words) > 1 and words[1].isdecimal()}
