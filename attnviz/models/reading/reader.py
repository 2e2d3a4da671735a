"""Reader: the one way to open a model, which turns examples into the inputs of its module and the axes of its maps.

A source of recordings is a class of this kind in a file of its own, and a row of ``SOURCES``. It says what its module
is, how a text is cut into tokens, and what the module is called with; record, survey, ablate, battery, explain and
logits follow from that, under one capture.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from attnviz.base.errors import AttnvizError, known_names, option
from attnviz.version import __version__

if TYPE_CHECKING:
    import torch
    from torch import nn

    from attnviz.base.arrays import IntArray
    from attnviz.maps.recording import Recording
    from attnviz.models.reading.computation import Computation
    from attnviz.models.reading.example import Example
    from attnviz.models.reading.prepared import Prepared, Vocabulary
    from attnviz.models.reading.settings import ModelSettings
    from attnviz.text.selection import Selection
    from attnviz.text.tokens import Tokens

Use = Literal["maps", "predictions", "texts"]
FRAME_TEXT = "a"  # whose special tokens are those around every text


class Reader(ABC):
    """A model, and how it reads.

    Attributes:
        reads: the parts of an example that it reads; any other is refused before it runs.
        has_learned: whether its weights were trained, so that it can be asked what they learned.
        has_example: whether it brings an example of its own, for a command that is given none.
        settings: how it is built or loaded, and run.
        built_in: the names of the models that come with the package, for messages.
        use: what its module is for: ``maps`` of single texts, ``predictions`` that are measured, or ``texts`` of a
            corpus, many at once.

    Args:
        settings: the model's settings, of which it uses all that were given.
        built_in: names of other models, for messages.
        use: what the module is for.
    """

    reads: ClassVar[tuple[str, ...]] = ("text",)
    has_learned: ClassVar[bool] = True
    has_example: ClassVar[bool] = False

    def __init__(self, settings: "ModelSettings", built_in: Sequence[str] = (), use: Use = "maps") -> None:
        self.settings, self.built_in, self.use = settings, built_in, use

    @property
    @abstractmethod
    def module(self) -> "nn.Module":
        """What is called: the model, or the part of it that its use needs."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What captions call the model."""

    @abstractmethod
    def tokenize(self, text: str) -> "Tokens":
        """The tokens of one text, with the special ones around it.

        Raises:
            AttnvizError: if it has none.
        """

    @abstractmethod
    def inputs_of(self, ids: "torch.Tensor", real: "torch.Tensor | None" = None) -> dict[str, Any]:
        """What the module is called with, by name, for tokens of these numbers.

        The numbers stand under ``input_ids`` or ``ids``, where the measures of effects look for what was predicted.

        Args:
            ids: ``(texts, tokens)``, where the module is.
            real: 1 for tokens and 0 for padding, which is at the ends; ``None`` where there is none.
        """

    @property
    def limit(self) -> int | None:
        """The most tokens that it reads; ``None`` for any number."""
        return None

    @property
    def padding(self) -> int:
        """The number of the token that fills up a batch."""
        return 0

    @property
    def device(self) -> "torch.device":
        """Where the weights are."""
        return next(self.module.parameters()).device

    def running(self) -> AbstractContextManager[None]:
        """Within, the module may run: a library that it is of is kept quiet."""
        return nullcontext()

    def read(self, example: "Example") -> "Prepared":
        """The example as the module reads it.

        Raises:
            AttnvizError: if it has a part that the model does not read, no tokens, or more than it reads.
        """
        from attnviz.models.reading.prepared import Prepared

        self.refuse_parts(example)
        tokens = self.tokenize(example.text)
        if self.limit is not None and len(tokens) > self.limit:
            raise AttnvizError(
                f"the text has {len(tokens)} tokens and {self.name} reads at most {self.limit}; a shorter text works"
            )
        return Prepared(self.inputs_of(self.tensor(tokens.ids[None])), tokens, title=example.text)

    def refuse_parts(self, example: "Example") -> None:
        """Raises AttnvizError where the example has a part that the model does not read."""
        unread = next((part for part in example.parts if part not in self.reads), None)
        if unread is not None:
            raise AttnvizError(f"{self.name} reads no {option(unread)}; {known_names(self.reads)} works")

    def own_example(self) -> "Prepared":
        """The example that the model brings along.

        Raises:
            AttnvizError: if it has none.
        """
        raise AttnvizError(f"{self.settings.model} needs a text; attnviz samples lists some")

    def read_windows(self, texts: Sequence[str], window: int | None) -> "list[list[Tokens]]":
        """The tokens of each text, in parts of at most ``window`` tokens; none where it has more than the model reads.

        Args:
            texts: each is read for itself.
            window: how long a part is, the special tokens around it included; ``None`` cuts none.
        """
        from attnviz.models.reading.windows import windows_of

        return [windows_of(self.tokenize(text), window, self.limit) for text in texts]

    def inputs_of_batch(self, texts: "Sequence[Tokens]") -> dict[str, Any]:
        """What the module is called with for several texts, padded at their ends."""
        import numpy as np

        width = max(map(len, texts))
        ids, real = (np.full((len(texts), width), filling, dtype=np.int64) for filling in (self.padding, 0))
        for row, tokens in enumerate(texts):
            ids[row, : len(tokens)], real[row, : len(tokens)] = tokens.ids, 1
        return self.inputs_of(self.tensor(ids), self.tensor(real))

    def tensor(self, numbers: "IntArray") -> "torch.Tensor":
        """Whole numbers where the module takes its inputs."""
        import torch

        # weights that wait on disk are on no device; what they meet is moved to them
        return torch.tensor(numbers).to("cpu" if self.device.type == "meta" else self.device)

    def find_token(self, wanted: str, tokens: "Tokens") -> int:
        """The number of a token that is written so, among those of a text.

        Raises:
            AttnvizError: if there is none, or it is several tokens.
        """
        places = [place for place, label in enumerate(tokens.labels) if wanted in (label, label.strip("␣ "))]
        if not places:
            raise AttnvizError(f"no token {wanted!r} in the text, whose tokens are all that {self.name} knows")
        return int(tokens.ids[places[0]])

    def vocabulary(self) -> "Vocabulary":
        """The tokens that the model knows."""
        import numpy as np

        from attnviz.models.reading.prepared import Vocabulary

        frame = self.tokenize(FRAME_TEXT)
        inside = np.flatnonzero(~frame.special)
        words = np.setdiff1d(self.ordinary_ids(), frame.ids[frame.special])
        return Vocabulary(words, frame.ids[: inside[0]].copy(), frame.ids[inside[-1] + 1 :].copy())

    def ordinary_ids(self) -> "IntArray":
        """The numbers of all tokens but special ones; those around a text may be among them.

        Raises:
            AttnvizError: if the model looks no token up.
        """
        import numpy as np
        from torch import nn

        table = next((part for part in self.module.modules() if isinstance(part, nn.Embedding)), None)
        if table is None:
            raise AttnvizError(f"{self.name} looks up no token, so that none can be chosen at random")
        return np.arange(table.num_embeddings)

    def doubts(self, tokens: "Tokens") -> tuple[str, ...]:
        """What a reader of a text's maps must know about its tokens."""
        return ()

    def refuse_absent(self, selection: "Selection") -> None:
        """Raises AttnvizError for a layer or head that the model lacks, as far as that is known before it is loaded."""
        return

    def refuse_broken(self, inputs: dict[str, Any]) -> None:
        """Raises AttnvizError where the model cannot run on these inputs by itself; called when a run has failed."""
        return

    def record(self, example: "Example", selection: "Selection", values: bool = False) -> "Recording":
        """The recording of one example; with ``values`` it keeps what each key moves.

        Raises:
            AttnvizError: if the text has no tokens, or the selection names what is not there.
        """
        self.refuse_absent(selection)
        with self.running():
            prepared = self.read(example)
            from attnviz.models.reading.captured import record_module

            recorded = record_module(
                self.module,
                prepared,
                selection,
                values=values,
                dense=self.settings.dense,
                refuse_broken=self.refuse_broken,
            )
            doubts = self.doubts(prepared.tokens)
        return replace(
            recorded,
            model=self.name,
            untrained=not self.has_learned,
            settings=self.settings.as_json() | {"architecture": type(self.module).__name__},
            version=__version__,
            remarks=(*prepared.remarks, *doubts, *recorded.remarks),
        )

    def record_batch(self, examples: "Sequence[Example]", selection: "Selection", values: bool = False) -> "Recording":
        """The recording of several examples, run as one batch.

        Raises:
            AttnvizError: if this source takes one text at a time.
        """
        raise AttnvizError(f"{option('batch')} works with the seeded model; leave {option('model')} out")

    def compute(self, example: "Example", layer: int) -> "Computation":
        """Every number of one layer over one example, as far as the run shows them.

        Raises:
            AttnvizError: if the text has no tokens, or there is no such layer.
        """
        from attnviz.text.selection import Selection

        self.refuse_absent(Selection(layers=(layer,)))
        from attnviz.models.reading.captured_computation import computation_of

        return computation_of(self.module, self.read(example), layer, self.name)
