"""Surveys a corpus: reads it in chunks, shares their batches among processes, and keeps checkpoints."""

import hashlib
import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import torch
from torch import nn

from attnviz.base.errors import AttnvizError
from attnviz.base.progress import Reached, track_open_end
from attnviz.corpus.checkpoints import Progress, from_bytes, read_checkpoint, refuse_foreign, to_bytes, write_checkpoint
from attnviz.corpus.measuring.survey_batch import survey_of_batch
from attnviz.corpus.processes import Processes
from attnviz.corpus.sums.survey import Survey, merged
from attnviz.corpus.texts.batches import Batch, SurveyOptions, batches_of, chunks_of
from attnviz.corpus.texts.read import CorpusReader, CorpusText, GivenTexts
from attnviz.models.reading.reader import Reader

TOO_LONG = "too long for the model"
CHECKPOINT_SECONDS = 30.0
FINGERPRINT_NUMBERS = 64  # of each weight


class SurveyRun:
    """A survey while it runs.

    Args:
        model: reads the texts.
        options: what is surveyed.
        processes: that share the work.
        checkpoint: where what was done is kept meanwhile; ``None`` for nowhere.
        seconds: how long it takes from one checkpoint to the next; ``None`` for half a minute.

    Raises:
        AttnvizError: if something other than a checkpoint is where the checkpoint goes.
    """

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
            refuse_foreign(checkpoint)
        self.fingerprint = fingerprint(model.module)
        self.survey: Survey | None = None
        self.written = time.monotonic()
        self.rounds = self.rounds_left = 1
        self.skipped: Counter[str] = Counter()

    def run(self, reader: CorpusReader | GivenTexts, resume: bool = False) -> Survey | None:
        """The survey of a corpus; nothing but in the first of several processes.

        Args:
            reader: reads the corpus.
            resume: whether to go on from the checkpoint, where there is one.

        Raises:
            AttnvizError: if there is no text, the checkpoint is of something else, or another process is gone.
        """
        start, last = self._start(resume), Progress()
        with track_open_end("surveying", shown=self.processes.is_first) as say:
            for last, batch in self._rounds(reader, start):
                if batch is not None:
                    self.survey = merged(self.survey, survey_of_batch(self.model, batch, self.options))
                self._keep(last)
                say(self._reached(last, reader))
        self._gather()
        if not self.processes.is_first:
            return None
        skipped = dict(self.skipped + Counter({TOO_LONG: last.too_long}))  # without what counts none
        if self.survey is None:
            reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(skipped.items()))
            raise AttnvizError(f"no text to survey in {', '.join(self.options.corpus)} ({reasons or 'it is empty'})")
        return replace(self.survey, skipped=skipped)

    def _start(self, resume: bool) -> Progress:
        """Where to go on from: the checkpoint that the first process finds, whose sums it takes up."""
        found = b""
        if self.processes.is_first and resume and self.checkpoint is not None and self.checkpoint.is_file():
            self.survey, progress = read_checkpoint(self.checkpoint, self.options.settings, self.fingerprint)
            found = json.dumps(asdict(progress)).encode()
        found = self.processes.agree(found)
        return Progress(**json.loads(found)) if found else Progress()

    def _rounds(self, reader: CorpusReader | GivenTexts, start: Progress) -> Iterator[tuple[Progress, Batch | None]]:
        """Each batch of this process, and how far all are when each has done its own; chunks that are done are passed.

        Raises:
            AttnvizError: where these were others.
        """
        progress, digest, limit = Progress(), hashlib.blake2b(digest_size=16), self.options.tokens
        for chunk in chunks_of(reader):
            if progress.chunks < start.chunks:
                progress = replace(progress, chunks=progress.chunks + 1)
                _digest(digest, chunk)
                self.skipped = Counter(reader.skipped)
                continue
            if progress.chunks == start.chunks:
                self._refuse_other_corpus(start, digest.hexdigest())
                progress = start
            if limit is not None and progress.tokens >= limit:
                break
            self.skipped = Counter(reader.skipped)
            room = None if limit is None else limit - progress.tokens
            packed = batches_of(chunk, self.model, self.options, progress.windows, room)
            for first in range(progress.batches, len(packed.batches), self.processes.count):
                done, own = min(first + self.processes.count, len(packed.batches)), first + self.processes.rank
                batch = packed.batches[own] if own < len(packed.batches) else None
                yield replace(progress, batches=done), batch
            _digest(digest, chunk)
            progress = Progress(
                chunks=progress.chunks + 1,
                windows=progress.windows + packed.windows,
                tokens=progress.tokens + packed.tokens,
                too_long=progress.too_long + packed.too_long,
                digest=digest.hexdigest(),
            )
            yield progress, None
        else:
            self.skipped = Counter(reader.skipped)
        if progress.chunks < start.chunks:
            self._refuse_other_corpus(start, "")
        if progress.chunks == start.chunks:
            self._refuse_other_corpus(start, digest.hexdigest())
            yield start, None

    def _refuse_other_corpus(self, start: Progress, digest: str) -> None:
        if start.digest and start.digest != digest:
            raise AttnvizError(
                f"the texts are not those that {str(self.checkpoint)!r} was made of; give the same corpus, "
                "or delete it to start anew"
            )

    def _keep(self, progress: Progress) -> None:
        """Writes a checkpoint where it is time; with several processes, after as many batches as were agreed."""
        if self.checkpoint is None:
            return
        self.rounds_left -= 1
        if time.monotonic() - self.written < self.seconds if self.processes.count == 1 else self.rounds_left > 0:
            return
        self._gather()
        if self.processes.is_first and self.survey is not None:
            write_checkpoint(self.checkpoint, self.survey, progress, self.fingerprint)
        took = (time.monotonic() - self.written) / self.rounds
        wanted = str(max(1, min(int(self.seconds / max(took, 1e-3)), 2 * self.rounds)))
        self.rounds = self.rounds_left = int(self.processes.agree(wanted.encode()))
        self.written = time.monotonic()

    def _gather(self) -> None:
        """Has the first process hold what all have summed up since the last time."""
        if self.processes.count == 1:
            return
        for part in self.processes.gather(to_bytes(self.survey))[1:]:
            self.survey = merged(self.survey, from_bytes(part))
        if not self.processes.is_first:
            self.survey = None

    def _reached(self, progress: Progress, reader: CorpusReader | GivenTexts) -> Reached:
        """What the bar says."""
        texts, tokens = (0, 0) if self.survey is None else (self.survey.texts, self.survey.tokens)
        share = reader.share if self.options.tokens is None else progress.tokens / self.options.tokens
        return Reached(texts * self.processes.count, tokens * self.processes.count, share)


def _digest(digest: "hashlib.blake2b", chunk: Sequence[CorpusText]) -> None:
    """Adds the texts of a chunk, each with its length before it."""
    for text in chunk:
        content = text.text.encode()
        digest.update(len(content).to_bytes(8, "little") + content)


def fingerprint(model: nn.Module) -> str:
    """What tells a model from others: the names, shapes and first numbers of its weights."""
    digest = hashlib.blake2b(digest_size=16)
    for name, weight in model.named_parameters():
        digest.update(f"{name} {tuple(weight.shape)} {weight.dtype}".encode())
        if weight.device.type != "meta":
            first = weight.detach().reshape(-1)[:FINGERPRINT_NUMBERS].to("cpu", torch.float64)
            digest.update(first.numpy().tobytes())
    return digest.hexdigest()
