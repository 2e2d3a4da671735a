"""Defines the reader: the one way to open a model, which turns examples into a module's inputs and its maps' tokens.

A new source of recordings is a subclass in a file of its own, and a row of ``SOURCES``. It defines its module, how a
text is split into tokens, and the arguments of the module; record, survey, ablate, the battery, explain and logits then
work by the same capture.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from attnviz.base.errors import AttnvizError, option, or_list
from attnviz.models.reading.example import Example, FoundToken, Prepared, Use, Vocabulary
from attnviz.text.selection import Selection, refuse_missing
from attnviz.version import __version__

if TYPE_CHECKING:
    import torch
    from torch import nn

    from attnviz.base.arrays import BoolArray, IntArray
    from attnviz.effects.prediction import Prediction
    from attnviz.effects.why import Why
    from attnviz.maps.recording import Recording
    from attnviz.models.reading.computation import Computation
    from attnviz.models.reading.settings import ModelSettings
    from attnviz.text.tokens import Tokens

FRAME_TEXT = "a"


class Reader(ABC):
    """A model with its tokenizer, which turns examples into inputs.

    Attributes:
        keeps_factors: true to record queries and keys beside whole maps too, from which a page explains scores.
    """

    # the parts of an example that it reads; others are refused before the model runs
    reads: ClassVar[tuple[str, ...]] = ("text",)
    # true if its weights were trained, so that removing heads shows what they learned
    is_trained: ClassVar[bool] = True

    def __init__(self, settings: "ModelSettings", built_in: Sequence[str] = (), use: Use = "maps") -> None:
        self.settings, self.built_in, self.use = settings, built_in, use
        self.keeps_factors = False

    # What each source defines

    @property
    @abstractmethod
    def module(self) -> "nn.Module":
        """The module to call: the model, or the part of it that the use needs."""

    @abstractmethod
    def tokenize(self, text: str) -> "Tokens":
        """Splits a text into tokens, with the special tokens around it."""

    @abstractmethod
    def inputs_of(self, ids: "torch.Tensor", attention_mask: "torch.Tensor | None" = None) -> dict[str, Any]:
        """Returns the module's keyword arguments for token ids.

        The ids must be under ``input_ids`` or ``ids``, because the metrics of effects read the predicted tokens there.

        Args:
            ids: ``(texts, tokens)``, on the module's device.
            attention_mask: ``(texts, tokens)``, 1 for tokens, 0 for padding, which comes last; ``None`` for no padding.
        """

    # What a source may know better

    @property
    def name(self) -> str:
        """The name of the model in captions: its attribute ``name`` or its class."""
        from attnviz.capture.model_calls import name_of

        return name_of(self.module)

    @property
    def limit(self) -> int | None:
        """The largest number of tokens that the model reads; ``None`` for any number."""
        return None

    def limit_for(self, count: int) -> int | None:
        """Returns the limit if a text of this many tokens is to be read; a subclass may measure it for the purpose."""
        return self.limit

    @property
    def padding_id(self) -> int:
        """The id of the padding token of a batch."""
        return 0

    @property
    def takes_padding(self) -> bool:
        """True if texts of different lengths may run together."""
        return True

    @property
    def frame_text(self) -> str:
        """A short text that the model reads, which shows the special tokens around any text."""
        return FRAME_TEXT

    @property
    def failure(self) -> str:
        """The begin of the refusal of an example on which the model fails without the capture too; "" for none."""
        return ""

    @property
    def origins(self) -> tuple[str, ...]:
        """Remarks on weights that are not those of the model's files; none unless a subclass has some."""
        return ()

    @property
    def tower(self) -> str:
        """The tower whose heads are recorded, ``text`` or ``picture``; "" for a model without both towers."""
        return ""

    @property
    def known_counts(self) -> tuple[int | None, int | None]:
        """The largest numbers of layers and heads, as far as they are known before the model is loaded."""
        return None, None

    @property
    def ablated_module(self) -> str | None:
        """The path of the part of the module whose heads are ablated; ``None`` for all heads."""
        return None

    def running(self) -> AbstractContextManager[None]:
        """Returns the context in which the module runs; a subclass silences the module's library in it."""
        return nullcontext()

    def doubts(self, tokens: "Tokens") -> tuple[str, ...]:
        """Returns remarks on the tokens of a text, which are shown with its maps; none unless a subclass has some."""
        return ()

    def recorded_part(self, prepared_input: Prepared) -> "tuple[nn.Module, Prepared]":
        """Returns the module and its inputs; a subclass may return a part of the module with the part's inputs."""
        return self.module, prepared_input

    def read(self, example: Example) -> Prepared:
        """Returns a text as inputs of the module, with the tokens of its maps."""
        self.refuse_parts(example)
        tokens = example.with_groups(self.tokenize(example.text))
        limit = self.limit_for(len(tokens))
        if limit is not None and len(tokens) > limit:
            raise AttnvizError(
                f"the text has {len(tokens)} tokens, but {self.name} reads at most {limit}; use a shorter text"
            )
        return Prepared(self.inputs_of(self.tensor(tokens.ids[None])), tokens, title=example.text)

    def built_in_example(self) -> Prepared:
        """Returns the model's built-in example, for commands without a text."""
        raise AttnvizError(f"{self.settings.model} needs a text; see attnviz info samples")

    def hiding(self, prepared_input: Prepared) -> "Callable[[BoolArray], dict[str, Any]]":
        """Returns the function that returns the module's keyword arguments with some tokens hidden from later ones.

        It takes true for each token, ``(tokens,)``, that no later one sees; places of tokens stay the same.
        """
        raise AttnvizError(f"{self.name} takes no mask of keys, so {option('by')} cannot hide a unit; leave it out")

    def read_windows(self, texts: Sequence[str], window: int | None) -> "list[list[Tokens]]":
        """Returns a list of windows of tokens for each text; the list of a text that does not fit is empty.

        A text does not fit if its only window has more tokens than the model reads, or if special tokens alone fill a
        window.
        """
        from attnviz.text.tokens import windows_of

        token_lists = [self.tokenize(text) for text in texts]
        limit = self.limit_for(max(map(len, token_lists), default=0))
        return [windows_of(tokens, window, limit) for tokens in token_lists]

    def find_token(self, label: str, tokens: "Tokens") -> FoundToken:
        """Returns the first token of a text that has this label, else one that has it with spaces around it."""
        from attnviz.text.places import labelled

        positions = labelled(tokens, label)
        if not positions:
            raise AttnvizError(f"no token {label!r} in the text; {self.name} knows only the text's tokens: give one")
        return FoundToken(int(tokens.ids[positions[0]]), tokens.labels[positions[0]])

    def label_of(self, token_id: int, tokens: "Tokens") -> str:
        """Returns the label of a token of the vocabulary, as the text has it; ``[7]`` for one that it does not have."""
        import numpy as np

        positions = np.flatnonzero(tokens.ids == token_id)
        return tokens.labels[positions[0]] if len(positions) else f"[{token_id}]"

    def ordinary_ids(self) -> "IntArray":
        """Returns every id of the model's first embedding; subclasses that know special tokens leave them out."""
        import numpy as np
        from torch import nn

        embedding = next((part for part in self.module.modules() if isinstance(part, nn.Embedding)), None)
        if embedding is None:
            raise AttnvizError(f"{self.name} has no embedding, so random tokens cannot be sampled; use another model")
        return np.arange(embedding.num_embeddings)

    def region_probes(self) -> "tuple[IntArray, BoolArray, BoolArray] | None":
        """Returns texts whose words name parts of a picture, and masks of cells; ``None`` without such words.

        Returns:
            Ids, ``(texts, tokens)``; a mask of the cells from each word to the part that it names, ``(texts, queries,
            keys)``; and a mask of the cells to a part that another word names. ``None`` if the model has no such words.
        """
        return None

    def record_batch(self, examples: "Sequence[Example]", selection: Selection, values: bool = False) -> "Recording":
        """Returns one recording of several examples, run as one batch."""
        raise AttnvizError(f"{option('batch')} needs the seeded model; leave out {option('model')}")

    # What every command does with it

    def record(self, example: Example, selection: Selection, values: bool = False) -> "Recording":
        """Returns the recording of one example, with the model's name, its settings and all remarks."""
        self.refuse_absent(selection)
        with self.running():
            prepared_input = self.read(example)
        return self.recorded(prepared_input, selection, values)

    def recorded(self, prepared_input: Prepared, selection: Selection, values: bool = False) -> "Recording":
        """Returns the recording of an example that was read, with the places that are measured after the run."""
        from attnviz.models.reading.captured import record_module

        with self.running():
            module, prepared_input = self.recorded_part(prepared_input)
            recording = record_module(
                module,
                prepared_input,
                selection,
                values=values,
                dense=self.settings.dense,
                factors=self.keeps_factors,
                failure=self.failure,
            )
            doubts = self.doubts(prepared_input.tokens)
        tower_setting = {"tower": self.tower} if self.tower else {}  # absent in files of models with one tower
        recording = replace(
            recording,
            model=self.name,
            untrained=not self.is_trained,
            settings=self.settings.as_json() | {"architecture": type(self.module).__name__} | tower_setting,
            version=__version__,
            remarks=(*prepared_input.remarks, *doubts, *recording.remarks),
        )
        return recording if prepared_input.place is None else prepared_input.place(recording)

    def compute(self, example: Example, layer: int) -> "Computation":
        """Returns the queries, keys, scores, weights and output of one layer; arrays not captured are empty."""
        self.refuse_absent(Selection(layers=(layer,)))
        from attnviz.models.reading.captured import computation_of

        prepared_input = self.read(example)
        module, recorded = self.recorded_part(prepared_input)
        return computation_of(module, replace(prepared_input, inputs=recorded.inputs), layer, self.name)

    def why(
        self,
        example: Example,
        token: int | str | None = None,
        versus: int | str | None = None,
        position: int | None = None,
        *,
        checks: bool = True,
        controls: int | None = None,
        replace_by: Any = "zero",
    ) -> "Why":
        """Returns why the model predicts a token of one example, with its labels and places; see `attnviz.why`.

        Args:
            token: the token to explain, by its label or id; ``None`` for the most probable one.
            versus: another token, whose logit is subtracted; ``None`` for none.
            position: the index of the token after which the prediction stands; ``None`` for the last one, or if the
                model wrote tokens, the one before the last of these.
            checks: false to leave the checks out.
            controls: how many random sets the checks are compared with; ``None`` for the default.
            replace_by: what removed heads write: ``zero``, their ``mean``, or that on another text with as many tokens.
        """
        self.refuse_absent(Selection())  # an absent model, before torch is imported
        with self.running():
            prediction, title, remarks = self.prediction(example, token, versus, position, replace_by)
            result = prediction.explain(checks, controls)
        return replace(result, model=self.name, title=title, remarks=(*remarks, *result.remarks))

    def prediction(
        self,
        example: Example,
        token: int | str | None,
        versus: int | str | None,
        position: int | None = None,
        replace_by: Any = "zero",
    ) -> "tuple[Prediction, str, tuple[str, ...]]":
        """Returns a prediction to explain, as `why` takes it, with the title and the remarks of its example."""
        import numpy as np

        from attnviz.effects.prediction import Prediction

        prepared_input = self.read(example)
        tokens, count = prepared_input.tokens, len(prepared_input.tokens)
        ids, remarks = list[int | None](), list[str]()
        for name in (token, versus):
            found = self.find_token(name, tokens) if isinstance(name, str) else None
            ids.append(found.id if found is not None else name if isinstance(name, int) else None)
            remarks += filter(None, [found.remark if found is not None else ""])
        if position is None:
            position = count - 1
            if prepared_input.generated_ids or self.settings.generate or self.use == "sounds":
                ordinary = np.flatnonzero(~tokens.special)  # the model may have written an end
                position = max(int(ordinary[-1]) - 1, 0) if len(ordinary) else position
        prediction = Prediction(
            model=self.module,
            args=(),
            kwargs=prepared_input.inputs,
            tokens=tokens,
            label=lambda token_id: self.label_of(token_id, tokens),
            context_tokens=prepared_input.context,
            token=ids[0],
            versus=ids[1],
            position=position,
            part=self.ablated_module,
            replace_by=self.replacement(replace_by),
        )
        return prediction, prepared_input.title, (*remarks, *prepared_input.remarks)

    def replacement(self, replace_by: Any) -> Any:
        """Returns what removed heads write, with a text or a reading of one read as the inputs of the module."""
        if isinstance(replace_by, str) and replace_by not in ("zero", "mean"):
            return self.read(Example.of(replace_by, self.settings)).inputs
        example = getattr(replace_by, "example", None)  # of an `attnviz.reading`
        return self.read(example).inputs if isinstance(example, Example) else replace_by

    def answered(self, example: Example) -> Example:
        """Returns the example with the ids that the model generates after it, so that every run reads these."""
        if not self.settings.generate:
            return example
        with self.running():
            return replace(example, generated_ids=self.read(example).generated_ids)

    def refuse_parts(self, example: Example) -> None:
        """Raises AttnvizError if the example has a part that the model does not read."""
        unread_part = next((part for part in example.parts if part not in self.reads), None)
        if unread_part == "messages":
            raise AttnvizError(
                f"{self.name} has no chat template for messages; choose a chat model with {option('model')}"
            )
        if unread_part == "answer":
            raise AttnvizError(
                f"{self.name} reads texts, not the token ids of a server's answer; give the folder of the model that "
                f"wrote it, such as {option('model', './llama')}"
            )
        if unread_part is not None:
            name, *names = ("image" if part == "images" else part for part in (unread_part, *self.reads))
            raise AttnvizError(f"{self.name} does not read {option(name)}; give {or_list(dict.fromkeys(names))}")

    def refuse_absent(self, selection: Selection) -> None:
        """Raises AttnvizError if a selected layer or head is beyond the known counts."""
        layers, heads = self.known_counts
        if layers is not None:
            refuse_missing(selection.chosen_layers, tuple(range(layers)), "layer")
        if heads is not None:
            for layer in selection.chosen_layers or (0,):
                refuse_missing(selection.heads_of(layer), tuple(range(heads)), "head")

    def vocabulary(self) -> Vocabulary:
        """Returns the ids of the model's ordinary tokens, and of the special tokens before and after a text."""
        import numpy as np

        frame = self.tokenize(self.frame_text)
        text_positions = np.flatnonzero(~frame.special)
        ordinary_ids = np.setdiff1d(self.ordinary_ids(), frame.ids[frame.special])
        return Vocabulary(
            ordinary_ids, frame.ids[: text_positions[0]].copy(), frame.ids[text_positions[-1] + 1 :].copy()
        )

    def inputs_of_batch(self, texts: "Sequence[Tokens]") -> dict[str, Any]:
        """Returns the module's keyword arguments for several texts, padded at the end."""
        import numpy as np

        width = max(map(len, texts))
        ids = np.full((len(texts), width), self.padding_id, dtype=np.int64)
        is_token = np.zeros_like(ids)
        for row, tokens in enumerate(texts):
            ids[row, : len(tokens)] = tokens.ids
            is_token[row, : len(tokens)] = 1
        return self.inputs_of(self.tensor(ids), self.tensor(is_token))

    def tensor(self, numbers: "IntArray") -> "torch.Tensor":
        """Returns an integer array as a tensor on the device of the module's inputs."""
        import torch

        return torch.tensor(numbers).to(self.input_device)

    @property
    def device(self) -> "torch.device":
        """The device of the module's first weights; the processor if it has none."""
        import torch

        return next(self.module.parameters(), torch.empty(0)).device

    @property
    def input_device(self) -> "torch.device | str":
        """The device of the module's inputs."""
        # With device_map, weights on disk have the device "meta"; accelerate then moves the inputs by itself.
        return "cpu" if self.device.type == "meta" else self.device
