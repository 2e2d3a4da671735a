"""Calls a model with inputs in any form, in evaluation mode, and counts its forward passes and loops over texts.

A forward pass begins with an outermost module. A module may loop over the texts of its batch: its turns are other texts
rather than further heads.
"""

import inspect
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attnviz.base.arrays import IntArray
from attnviz.base.errors import AttnvizError
from attnviz.capture.calls.arguments import hidden_from_run, unreadable_kind
from attnviz.capture.calls.layout import BatchShape
from attnviz.capture.flow.axes import Piece
from attnviz.capture.flow.sites import CallSite


class RunCounter:
    """Counts the forward passes of a model in one thread.

    A pass begins when an outermost module is called again after it attended: the model itself, or a part of it that is
    called by itself, as generation calls the encoder before the model.
    """

    def __init__(self, model: nn.Module, modules: Mapping[int, str], reads_ids: bool = False) -> None:
        self.model, self.modules = model, modules
        self.reads_ids = reads_ids
        self._ids: IntArray | None = None  # ``(texts, tokens)``, the last ids that the pass looked up
        self._features = 0  # the number of features that the pass looked up for an id
        self._expects_ids = True  # False from a lookup of ids to the next attention: others look up positions or types
        self.was_called = False  # True if a module of the model was called
        # The number of texts that each top-level module reads at once; "" is the model itself
        self.batches: dict[str, int] = {}
        # The sizes of the second and of the first axis of each input with three axes, by top-level module
        self.second_axes: dict[str, set[tuple[int, int]]] = {}
        # The sizes of the first two axes of each input, by top-level module
        self.shapes: dict[str, list[BatchShape]] = {}
        self.running: list[nn.Module] = []  # the modules that run now, each called by the one before
        self._outermost: int | None = None
        self._attended: set[int | None] = set()

    def begins_pass(self, module: nn.Module) -> bool:
        """True if another pass begins when a module is called now: it is outermost, or the model, and has attended."""
        # The modules of an interrupted pass may never have returned.
        return id(module) in self._attended and (not self.running or module is self.model)

    def enter(self, module: nn.Module, inputs: tuple[object, ...] = ()) -> nn.Module | None:
        """Notes that a module of the model is called, and returns the module that calls it.

        The first call within each top-level module also notes the shapes of its inputs.
        """
        # The shapes of the inputs of each top-level module, from its first call
        self.was_called = True
        top_module = self.modules[id(module)].partition(".")[0]
        if top_module not in self.batches:
            with hidden_from_run():
                tensors = [value for value in inputs if isinstance(value, Tensor) and not value.is_nested]
                shapes = [tensor.shape for tensor in tensors if tensor.dim() > 1]
                # Ids are (texts, tokens), but features have a third axis: a matrix of them shows no texts.
                token_tensors = [
                    tensor for tensor in tensors if tensor.dim() >= (3 if tensor.is_floating_point() else 2)
                ]
                self.shapes[top_module] = [BatchShape(*tensor.shape[:2]) for tensor in token_tensors]
            if shapes:
                self.batches[top_module] = max(shape[0] for shape in shapes)
                # The second axis comes first: a pair is texts and tokens if an input with features has tokens first.
                self.second_axes[top_module] = {(shape[1], shape[0]) for shape in shapes if len(shape) == 3}

        # The modules that run
        if not self.running or module is self.model:
            if self.begins_pass(module):
                self._attended.clear()
                self._ids, self._features, self._expects_ids = None, 0, True
            self.running.clear()
            self._outermost = id(module)
        parent = self.running[-1] if self.running else None
        self.running.append(module)

        # The ids that the pass looks up
        if self.reads_ids and self._expects_ids and isinstance(module, nn.Embedding):
            ids = next((value for value in inputs if isinstance(value, Tensor) and value.dim() in (1, 2)), None)
            # Tables with fewer features, such as those of relative positions, hold no tokens.
            may_hold_tokens = module.embedding_dim >= self._features
            if may_hold_tokens and ids is not None and not ids.is_floating_point() and not unreadable_kind(ids):
                self._features, self._expects_ids = module.embedding_dim, False
                with hidden_from_run():
                    self._ids = np.atleast_2d(ids.detach().cpu().numpy())
        return parent

    def leave(self, module: nn.Module) -> None:
        """Notes that a module has returned or raised; ignores modules of other models."""
        if id(module) in self.modules and self.running:  # a pass that began after an interrupted one is shorter
            self.running.pop()

    def note_attention(self) -> None:
        """Notes that the current pass made an attention call."""
        self._attended.add(self._outermost)
        self._expects_ids = True

    def ids_of(self, texts: int, tokens: int) -> IntArray | None:
        """Returns the ids that the pass looked up for a batch of this size; ``None`` if they are unknown.

        Tokens before those with ids, such as a soft prompt, have -1.
        """
        if self._ids is None or len(self._ids) != texts or self._ids.shape[1] > tokens:
            return None
        return np.pad(self._ids, ((0, 0), (tokens - self._ids.shape[1], 0)), constant_values=-1)

    def texts_of(self, module: str) -> int | None:
        """Returns the number of texts that the model reads at once; ``None`` if it is unknown.

        It comes from the inputs of the model, else from those of the outermost part around ``module``.
        """
        return self.batches.get("", self.batches.get(module.partition(".")[0]))

    def second_axes_of(self, module: str) -> set[tuple[int, int]]:
        """Returns the sizes of the second and of the first axis of each input with three axes; empty without any.

        They are texts and tokens if the input has tokens first. The inputs of the model count, else those of the
        outermost part around ``module``.
        """
        return self.second_axes.get("", self.second_axes.get(module.partition(".")[0], set()))

    def shapes_of(self, path: str, pieces: Sequence[Piece]) -> list[BatchShape]:
        """Returns the sizes of the first two axes of each positional input of the model.

        Without any, those of the top-level module of ``path``; empty if it has none either. An axis that a call
        processes in pieces has the size of its piece.
        """
        top_module = path.partition(".")[0]
        shapes = self.shapes.get("") or self.shapes.get(top_module, [])
        piece_sizes = {piece.whole[-1]: piece.rows for piece in pieces}  # by the size of the whole axis
        return [BatchShape(*(piece_sizes.get(size, size) for size in shape)) for shape in shapes]


@dataclass(frozen=True)
class _Turn:
    """A turn of a loop over texts."""

    pieces: tuple[Piece, ...]
    site: CallSite
    calls: int = 1
    earlier_calls: int = 0

    @property
    def is_last(self) -> bool:
        """True if this turn reads the last texts of the batch."""
        return any(piece.is_last for piece in self.pieces)


class TextLoops:
    """Finds the texts of the calls of a module that reads its batch piece by piece."""

    def __init__(self, runs: RunCounter) -> None:
        self.runs = runs
        self.turns: dict[str, _Turn] = {}

    def with_turn(self, site: CallSite, pieces: Sequence[Piece], shape: tuple[int, int, int, int]) -> CallSite:
        """Returns the site of a call with its turn of the loop as the run; the site unchanged if there is no loop.

        A call on the pieces of the module's last turn belongs to that turn, and one on pieces that follow them begins
        the next turn. A call on the first piece begins a loop if it is the module's first call or the module's last
        loop has ended. Keeps the turn as the module's last one.
        """
        text_pieces = tuple(piece for piece in pieces if self._covers_texts(piece, site, shape))
        if not text_pieces or site.run or site.head is not None:
            return site
        last_turn = self.turns.get(site.module)
        begins_loop = any(piece.is_first for piece in text_pieces)
        if last_turn is not None and any(piece in last_turn.pieces for piece in text_pieces):
            turn = replace(last_turn, calls=last_turn.calls + 1)
        elif last_turn is not None and any(
            piece.is_followed_by(next_piece) for piece in last_turn.pieces for next_piece in text_pieces
        ):
            turn_number, remainder = divmod(text_pieces[0].start, text_pieces[0].rows)
            if remainder:
                place = site.module or "the model itself"
                raise AttnvizError(
                    f"layer {site.layer} ({place}) takes the texts of its batch in parts of different sizes; "
                    "give a number of texts that it divides into equal parts"
                )
            turn = _Turn(text_pieces, replace(last_turn.site, run=turn_number), earlier_calls=last_turn.earlier_calls)
        elif begins_loop and not site.call:
            turn = _Turn(text_pieces, site)
        elif begins_loop and last_turn is not None and last_turn.is_last:
            turn = _Turn(text_pieces, site, earlier_calls=last_turn.earlier_calls + last_turn.calls)
        else:
            return site
        self.turns[site.module] = turn
        return replace(turn.site, call=turn.earlier_calls + turn.calls - 1)

    def has_further_texts(self, module: str) -> bool:
        """True if the module is in a loop over texts, and has not read the last of them; False without a loop."""
        turn = self.turns.get(module)
        return turn is not None and not turn.is_last

    def _covers_texts(self, piece: Piece, site: CallSite, shape: tuple[int, int, int, int]) -> bool:
        """True if the rows of a piece are the texts of a call, and not its queries."""
        texts, _, queries, keys = shape
        axis_size, batch_size = piece.whole[-1], self.runs.texts_of(site.module)
        if piece.rows != texts or piece.rows == axis_size:
            return False
        if batch_size is None or (axis_size, queries) in self.runs.second_axes_of(site.module):
            # The longer axis may be texts or tokens; in a loop over tokens, the second query would see two keys.
            return piece.rows != queries or (queries, keys) == (1, 1)
        return axis_size == batch_size


def name_of(model: nn.Module) -> str:
    """Returns what a model is called in pictures: its attribute ``name``, if that is a text, else its class."""
    name = getattr(model, "name", None)
    return name if isinstance(name, str) and name else type(model).__name__


def arguments_of(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the positional and keyword arguments with which a model is called."""
    acts_as_mapping = hasattr(inputs, "keys") and hasattr(inputs, "__getitem__")  # enough for ``dict``
    if isinstance(inputs, Mapping) or acts_as_mapping:
        return (), dict(inputs)
    if isinstance(inputs, tuple):
        return tuple(inputs), {}
    return (inputs,), {}


def map_leaves(inputs: Any, change: Callable[[str, Any], Any], name: str = "") -> Any:
    """Returns nested inputs in which a function of name and value replaces what is no mapping, list or tuple.

    A name says the way there, such as ``batch.pixels`` or ``images.0``. The inputs themselves stay unchanged.
    """
    prefix = f"{name}." if name else ""
    if isinstance(inputs, Mapping):
        changed: Any = dict(inputs) if type(inputs) is dict else copy(inputs)
        for key, value in inputs.items():
            changed[key] = map_leaves(value, change, f"{prefix}{key}")
        return changed
    if isinstance(inputs, list | tuple):
        values = [map_leaves(value, change, f"{prefix}{index}") for index, value in enumerate(inputs)]
        if isinstance(inputs, list):
            return values
        return type(inputs)(*values) if hasattr(inputs, "_fields") else tuple(values)
    return change(name, inputs)


def tensors_in(inputs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Returns the tensors of nested inputs, by the names of `map_leaves`."""
    tensors: dict[str, torch.Tensor] = {}

    def note(name: str, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            tensors[name] = value
        return value

    map_leaves(inputs, note)
    return tensors


def with_tensor(inputs: Mapping[str, Any], name: str, tensor: torch.Tensor) -> dict[str, Any]:
    """Returns nested inputs with another tensor under a name of `tensors_in`."""
    changed: dict[str, Any] = map_leaves(dict(inputs), lambda each, value: tensor if each == name else value)
    return changed


def run_model(model: nn.Module, inputs: Any) -> Any:
    """Calls the model with inputs in any form that `arguments_of` takes, and returns its output."""
    args, keywords = arguments_of(inputs)
    return model(*args, **keywords)


def logits_of_last(model: nn.Module, count: int) -> dict[str, Any]:
    """Returns the argument with which the model predicts after its last tokens alone; empty if it takes none."""
    name = "logits_to_keep"
    return {name: count} if name in inspect.signature(model.forward).parameters else {}


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Puts all modules of a model in evaluation mode in the block; after it, each has its former mode again."""
    training_modules = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training_modules:
            module.training = True


@contextmanager
def same_draws() -> Iterator[None]:
    """Runs the block with the random numbers of one seed, so that a module that shuffles patches repeats its order."""
    states = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])
