"""Surveys a corpus: reads it in chunks, shares their batches among processes, and keeps checkpoints.

torchrun starts the processes: each has a rank, and they exchange messages.
"""

import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, distributed, nn

from attnviz.base.errors import AttnvizError, option
from attnviz.base.progress import TextProgress, track_texts
from attnviz.corpus.batches import (
    CHUNK_PICTURES,
    Batch,
    CorpusPictures,
    SurveyOptions,
    batches_of,
    chunks_of,
    picture_batches,
)
from attnviz.corpus.read import CorpusReader, CorpusText, PassedTexts
from attnviz.corpus.saved import (
    Progress,
    from_bytes,
    read_checkpoint,
    refuse_other_file,
    to_bytes,
    write_checkpoint,
)
from attnviz.corpus.survey import Survey, merge_surveys
from attnviz.corpus.survey_batch import survey_of_batch, survey_of_picture
from attnviz.models.reading.reader import Reader

Corpus = CorpusReader | PassedTexts | CorpusPictures
TOO_LONG = "too long for the model"
CHECKPOINT_SECONDS = 30.0
FINGERPRINT_NUMBERS = 64  # elements of each parameter that the fingerprint reads
DIGEST_BYTES = 16  # of the hash of a model or a corpus
MIN_ROUND_SECONDS = 1e-3  # in case that the clock has not moved since the last checkpoint


@dataclass(frozen=True)
class Processes:
    """The processes that share a survey, seen from one of them."""

    rank: int = 0  # the rank of this process, from 0
    count: int = 1  # the number of processes

    @property
    def is_first(self) -> bool:
        """True for the process that reads and writes files."""
        return self.rank == 0

    def gather(self, content: bytes) -> list[bytes]:
        """Returns the contents of all processes in order of rank, in the first process; [] in the others.

        Every process must call it.
        """
        contents = [content] if self.is_first else []
        with _refuse_lost_peers():
            if not self.is_first:
                distributed.send(torch.tensor([len(content)]), 0)
                if content:
                    distributed.send(_tensor(content), 0)
                return contents
            for rank in range(1, self.count):
                size = torch.zeros(1, dtype=torch.int64)
                distributed.recv(size, rank)
                received = torch.empty(int(size), dtype=torch.uint8)
                if len(received):
                    distributed.recv(received, rank)
                contents.append(received.numpy().tobytes())
        return contents

    def agree(self, content: bytes) -> bytes:
        """Returns the content that the first process passes, in every process.

        Every process must call it; the others' contents are ignored.
        """
        if self.count == 1:
            return content
        with _refuse_lost_peers():
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
    """
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1 or "MASTER_ADDR" not in os.environ:
        yield Processes()
        return
    with _refuse_lost_peers():
        distributed.init_process_group("gloo")
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


def _tensor(content: bytes) -> Tensor:
    """Returns a copy of bytes as a tensor, ``(bytes,)``; an empty tensor for b""."""
    if not content:  # which torch.frombuffer refuses
        return torch.empty(0, dtype=torch.uint8)
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


@contextmanager
def _refuse_lost_peers() -> Iterator[None]:
    """Turns an error of torch in the block, which exchanges messages with other processes, into a refusal."""
    try:
        yield
    except RuntimeError as error:
        raise AttnvizError(
            f"another process of this survey does not answer; use {option('resume', True)} to go on from the last "
            "checkpoint"
        ) from error


class SurveyRun:
    """A survey in progress: the sums so far, and where the run stands in its corpus."""

    def __init__(
        self,
        model: Reader,
        options: SurveyOptions,
        processes: Processes | None = None,
        checkpoint: Path | None = None,
        seconds: float | None = None,
    ) -> None:
        self.model, self.options, self.processes = model, options, processes or Processes()
        self.checkpoint, self.seconds = checkpoint, CHECKPOINT_SECONDS if seconds is None else seconds
        if checkpoint is not None:
            refuse_other_file(checkpoint)
        self.fingerprint = fingerprint(model.module)
        self.metric_codes = {metric.name: metric.code for metric in options.metrics if metric.is_own}
        self.survey: Survey | None = None  # of no text yet
        self.last_write = time.monotonic()
        self.rounds = self.rounds_to_write = 1
        self.skipped: Counter[str] = Counter()

    def run(self, reader: Corpus, resume: bool = False) -> Survey | None:
        """Runs the survey; returns that of the whole corpus in the first process, and ``None`` in the others.

        Writes checkpoints on the way and shows a progress bar.
        """
        start = progress = Progress()
        if self.processes.is_first and resume and self.checkpoint is not None and self.checkpoint.is_file():
            self.survey, start = read_checkpoint(
                self.checkpoint, self.options.settings, self.fingerprint, self.metric_codes
            )
        start = Progress(**json.loads(self.processes.agree(json.dumps(asdict(start)).encode())))  # in every process
        survey_of = survey_of_picture if self.options.pictures else survey_of_batch
        with track_texts("surveying", show_bar=self.processes.is_first) as show:
            for progress, batch, share in self._rounds(reader, start):
                if batch is not None:
                    self.survey = merge_surveys(self.survey, survey_of(self.model, batch, self.options))
                self._write_checkpoint_if_due(progress)
                texts, tokens = (0, 0) if self.survey is None else (self.survey.texts, self.survey.tokens)
                show(TextProgress(texts * self.processes.count, tokens * self.processes.count, share))
        self._gather()
        if not self.processes.is_first:
            return None
        skipped_counts = dict(
            self.skipped + Counter({TOO_LONG: progress.too_long})
        )  # a sum of Counters drops counts of 0
        if self.survey is None:
            reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(skipped_counts.items()))
            kind = "picture" if self.options.pictures else "text"
            advice = f"cut them with {option('window', 128)}" if TOO_LONG in skipped_counts else "give another corpus"
            raise AttnvizError(
                f"no {kind} to survey in {', '.join(self.options.corpus)} ({reasons or 'it is empty'}); {advice}"
            )
        return replace(self.survey, skipped=skipped_counts, remarks=self.model.origins)

    def _rounds(self, reader: Corpus, start: Progress) -> Iterator[tuple[Progress, Batch | None, float | None]]:
        """Yields the progress after each round of batches, the batch of this process, and the share of the work.

        The batch is ``None`` if this process has none in the round, and the share if the work is unknown.
        """
        progress, hasher, limit = Progress(), hashlib.blake2b(digest_size=DIGEST_BYTES), self.options.tokens
        share_before = 0.0  # of the chunk, which is read as a whole before its batches run
        for chunk in chunks_of(reader, CHUNK_PICTURES if self.options.pictures else None):
            if progress.chunks < start.chunks:
                progress = replace(progress, chunks=progress.chunks + 1)
                _add_to_digest(hasher, chunk)
                self.skipped = Counter(reader.skipped)
                share_before = reader.share or 0.0
                continue
            if progress.chunks == start.chunks:  # the checkpoint's chunks are all hashed
                self._refuse_other_corpus(start, hasher.hexdigest())
                progress = start
            if limit is not None and progress.tokens >= limit:
                break
            self.skipped = Counter(reader.skipped)
            remaining = None if limit is None else limit - progress.tokens
            packed_chunk = (
                picture_batches(chunk, progress.windows)
                if self.options.pictures
                else batches_of(chunk, self.model, self.options, progress.windows, remaining)
            )
            share_after = reader.share if limit is None else (progress.tokens + packed_chunk.tokens) / limit
            for first_batch in range(progress.batches, len(packed_chunk.batches), self.processes.count):
                batches_done = min(first_batch + self.processes.count, len(packed_chunk.batches))
                index = first_batch + self.processes.rank
                batch = packed_chunk.batches[index] if index < len(packed_chunk.batches) else None
                share = share_after
                if share_after is not None:
                    share = share_before + (share_after - share_before) * batches_done / len(packed_chunk.batches)
                yield replace(progress, batches=batches_done), batch, share
            _add_to_digest(hasher, chunk)
            progress = Progress(
                chunks=progress.chunks + 1,
                windows=progress.windows + packed_chunk.windows,
                tokens=progress.tokens + packed_chunk.tokens,
                too_long=progress.too_long + packed_chunk.too_long,
                digest=hasher.hexdigest(),
            )
            share_before = share_after or 0.0
            yield progress, None, share_after
        else:  # the corpus ended before the limit of tokens
            self.skipped = Counter(reader.skipped)
        if progress.chunks < start.chunks:  # the corpus is shorter than the checkpoint's
            self._refuse_other_corpus(start, "")
        if progress.chunks == start.chunks:  # no chunk came after those of the checkpoint
            self._refuse_other_corpus(start, hasher.hexdigest())
            yield start, None, reader.share

    def _refuse_other_corpus(self, start: Progress, digest: str) -> None:
        if start.digest and start.digest != digest:
            raise AttnvizError(
                f"{str(self.checkpoint)!r} was written for another corpus; give the same one, or delete the file to "
                "start anew"
            )

    def _write_checkpoint_if_due(self, progress: Progress) -> None:
        """Writes a checkpoint if one is due; does nothing if this run writes no checkpoints."""
        if self.checkpoint is None:
            return
        self.rounds_to_write -= 1
        if self.processes.count == 1:
            is_early = time.monotonic() - self.last_write < self.seconds
        else:
            is_early = self.rounds_to_write > 0
        if is_early:
            return
        self._gather()
        if self.processes.is_first and self.survey is not None:
            write_checkpoint(self.checkpoint, self.survey, progress, self.fingerprint, self.metric_codes)
        round_seconds = max((time.monotonic() - self.last_write) / self.rounds, MIN_ROUND_SECONDS)
        # as many rounds as fit into the time, but no more than twice as many as before
        next_rounds = max(1, min(int(self.seconds / round_seconds), 2 * self.rounds))
        self.rounds = self.rounds_to_write = int(self.processes.agree(str(next_rounds).encode()))
        self.last_write = time.monotonic()

    def _gather(self) -> None:
        """Adds the surveys of the other processes to that of the first, and sets theirs to ``None``."""
        if self.processes.count == 1:
            return
        for part in self.processes.gather(to_bytes(self.survey))[1:]:
            self.survey = merge_surveys(self.survey, from_bytes(part))
        if not self.processes.is_first:
            self.survey = None


def _add_to_digest(hasher: "hashlib.blake2b", chunk: Sequence[CorpusText]) -> None:
    """Updates a hash in place with the texts of a chunk."""
    for text in chunk:
        content = text.text.encode()
        hasher.update(len(content).to_bytes(8, "little") + content)


def fingerprint(model: nn.Module) -> str:
    """Returns a hexadecimal digest of the model's parameters: their names, shapes, dtypes and first numbers.

    ``FINGERPRINT_NUMBERS`` of each parameter are read; those on the device ``meta`` are unknown and left out.
    """
    hasher = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for name, weight in model.named_parameters():
        hasher.update(f"{name} {tuple(weight.shape)} {weight.dtype}".encode())
        if weight.device.type != "meta":
            first_numbers = weight.detach().reshape(-1)[:FINGERPRINT_NUMBERS].to("cpu", torch.float64)
            hasher.update(first_numbers.numpy().tobytes())
    return hasher.hexdigest()
