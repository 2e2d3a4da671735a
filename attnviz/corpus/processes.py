"""Connects the processes that share a survey, as torchrun starts them: ranks, and messages between them."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, distributed

from attnviz.base.errors import AttnvizError, option

Result = TypeVar("Result")


@dataclass(frozen=True)
class Processes:
    """The processes that share a survey, seen from one of them.

    Attributes:
        rank: the rank of this process, from 0.
        count: the number of processes.
    """

    rank: int = 0
    count: int = 1

    @property
    def is_first(self) -> bool:
        """True for the process that reads and writes files."""
        return self.rank == 0

    def gather(self, content: bytes) -> list[bytes]:
        """Returns the contents of all processes in order of rank, in the first process; [] in the others.

        Every process must call it.

        Raises:
            AttnvizError: if another process is gone.
        """
        return [content] if self.count == 1 else _refuse_lost_peers(lambda: self._gather(content))

    def _gather(self, content: bytes) -> list[bytes]:
        """Receives the contents of the other processes, and returns all in order of rank, in the first process."""
        if not self.is_first:
            distributed.send(torch.tensor([len(content)]), 0)
            if content:
                distributed.send(_tensor(content), 0)
            return []
        return [content, *(_receive(rank) for rank in range(1, self.count))]

    def agree(self, content: bytes) -> bytes:
        """Returns the content that the first process passes, in every process.

        Every process must call it; the others' contents are ignored.

        Raises:
            AttnvizError: if another process is gone.
        """
        return content if self.count == 1 else _refuse_lost_peers(lambda: self._agree(content))

    def _agree(self, content: bytes) -> bytes:
        """Broadcasts the content of the first process, and returns it."""
        size = torch.tensor([len(content)])
        distributed.broadcast(size, 0)
        buffer = _tensor(content) if self.is_first else torch.empty(int(size), dtype=torch.uint8)
        if len(buffer):
            distributed.broadcast(buffer, 0)
        return buffer.numpy().tobytes()


@contextmanager
def open_processes() -> Iterator[Processes]:
    """Joins the processes that torchrun started and yields them, as this one sees them; leaves them at the end.

    Yields a single process, and joins nothing, if torchrun started no other.

    Raises:
        AttnvizError: if the processes cannot be joined.
    """
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1 or "MASTER_ADDR" not in os.environ:
        yield Processes()
        return
    _refuse_lost_peers(lambda: distributed.init_process_group("gloo"))
    try:
        yield Processes(distributed.get_rank(), count)
    finally:
        distributed.destroy_process_group()


def device_of_process(device: str) -> str:
    """Returns the device of this process: under torchrun ``auto`` and ``cuda`` become the GPU of its local rank.

    Without torchrun or a GPU, and for other devices, returns ``device`` unchanged.
    """
    local_rank = os.environ.get("LOCAL_RANK")
    if local_rank is None or device not in ("auto", "cuda") or not torch.cuda.is_available():
        return device
    return f"cuda:{int(local_rank) % torch.cuda.device_count()}"


def _receive(rank: int) -> bytes:
    """Waits for the content that another process sends, and returns it."""
    size = torch.zeros(1, dtype=torch.int64)
    distributed.recv(size, rank)
    content = torch.empty(int(size), dtype=torch.uint8)
    if len(content):
        distributed.recv(content, rank)
    return content.numpy().tobytes()


def _tensor(content: bytes) -> Tensor:
    """Returns a copy of bytes as a tensor, ``(bytes,)``; an empty tensor for b""."""
    if not content:  # which torch.frombuffer refuses
        return torch.empty(0, dtype=torch.uint8)
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def _refuse_lost_peers(work: Callable[[], Result]) -> Result:
    """Calls ``work``, which exchanges messages with other processes, and returns its result."""
    try:
        return work()
    except RuntimeError as error:
        raise AttnvizError(
            f"another process of this survey does not answer; use {option('resume', True)} to go on from the last "
            "checkpoint"
        ) from error
