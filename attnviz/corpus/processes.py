"""The processes that share a survey, as torchrun starts them: which of them this is, and what they tell one another."""

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
    """The processes of a survey.

    Attributes:
        rank: which of them this is, from 0.
        count: how many there are.
    """

    rank: int = 0
    count: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the one that reads checkpoints and writes."""
        return self.rank == 0

    def gather(self, content: bytes) -> list[bytes]:
        """What every process gives, in the order of their ranks; nothing but in the first.

        Raises:
            AttnvizError: if one of them is gone.
        """
        return [content] if self.count == 1 else _told(lambda: self._gather(content))

    def _gather(self, content: bytes) -> list[bytes]:
        if not self.is_first:
            distributed.send(torch.tensor([len(content)]), 0)
            if content:
                distributed.send(_tensor(content), 0)
            return []
        return [content, *(_received(rank) for rank in range(1, self.count))]

    def agree(self, content: bytes) -> bytes:
        """What the first process gives.

        Raises:
            AttnvizError: if one of them is gone.
        """
        return content if self.count == 1 else _told(lambda: self._agree(content))

    def _agree(self, content: bytes) -> bytes:
        size = torch.tensor([len(content)])
        distributed.broadcast(size, 0)
        held = _tensor(content) if self.is_first else torch.empty(int(size), dtype=torch.uint8)
        if len(held):
            distributed.broadcast(held, 0)
        return held.numpy().tobytes()


@contextmanager
def open_processes() -> Iterator[Processes]:
    """The processes that torchrun started with this one, or this one alone."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1 or "MASTER_ADDR" not in os.environ:
        yield Processes()
        return
    _told(lambda: distributed.init_process_group("gloo"))
    try:
        yield Processes(distributed.get_rank(), count)
    finally:
        distributed.destroy_process_group()


def device_of_process(device: str) -> str:
    """The device of this process, where several share the devices of a machine."""
    local = os.environ.get("LOCAL_RANK")
    if local is None or device not in ("auto", "cuda") or not torch.cuda.is_available():
        return device
    return f"cuda:{int(local) % torch.cuda.device_count()}"


def _received(rank: int) -> bytes:
    size = torch.zeros(1, dtype=torch.int64)
    distributed.recv(size, rank)
    content = torch.empty(int(size), dtype=torch.uint8)
    if len(content):
        distributed.recv(content, rank)
    return content.numpy().tobytes()


def _tensor(content: bytes) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else torch.empty(0, dtype=torch.uint8)


def _told(work: Callable[[], Result]) -> Result:
    """What ``work`` returns.

    Raises:
        AttnvizError: where another process is gone.
    """
    try:
        return work()
    except RuntimeError as error:
        raise AttnvizError(
            f"another process of this survey is gone; {option('resume', True)} goes on from the last checkpoint"
        ) from error
