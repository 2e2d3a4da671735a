"""Counts the forward passes of one recording, each of which begins with an outermost module."""

from collections.abc import Callable, Mapping, Sequence

from torch import Tensor, nn

from attnviz.capture.calls.layout import BatchShape
from attnviz.capture.calls.readable import hidden_from_run
from attnviz.capture.flow.lineage import Piece


class RunCounter:
    """Counts the forward passes of a model in one thread.

    A pass begins when an outermost module is called again after it attended: the model itself, or a part of it that is
    called by itself, as generation calls the encoder before the model.

    Attributes:
        was_called: True if a module of the model was called.
        batches: the number of texts that each top-level module reads at once; "" is the model itself.
        second_axes: the sizes of the second and of the first axis of each input with three axes, by top-level module.
        shapes: the sizes of the first two axes of each input, by top-level module.
        depth: the number of modules that run now, one within the other.
    """

    def __init__(
        self,
        model: nn.Module,
        modules: Mapping[int, str],
        on_next: Callable[[], None],
        on_start: Callable[[nn.Module], None],
    ) -> None:
        self.model, self.modules = model, modules
        self.on_next, self.on_start = on_next, on_start
        self.was_called = False
        self.batches: dict[str, int] = {}
        self.second_axes: dict[str, set[tuple[int, int]]] = {}
        self.shapes: dict[str, list[BatchShape]] = {}
        self.depth = 0
        self._outermost: int | None = None
        self._attended: set[int | None] = set()

    def note_attention(self) -> None:
        """Notes that the current pass made an attention call."""
        self._attended.add(self._outermost)

    def enter(self, module: nn.Module, inputs: tuple[object, ...] = ()) -> None:
        """Notes that a module is called, and calls ``on_start``; ignores modules of other models.

        If a module that is outermost or the model itself has attended since the last pass began, ``on_next`` is called
        before, as another pass begins. The first call within each top-level module also notes the shapes of its inputs.
        """
        name = self.modules.get(id(module))
        if name is None:
            return
        self.was_called = True
        top_module = name.partition(".")[0]
        if top_module not in self.batches:
            self._note_batch(top_module, inputs)
        if not self.depth or module is self.model:  # an interrupted pass does not count its depth down
            if id(module) in self._attended:
                self.on_next()
                self._attended.clear()
            self.depth, self._outermost = 0, id(module)
        self.depth += 1
        self.on_start(module)

    def leave(self, module: nn.Module) -> None:
        """Notes that a module has returned or raised; ignores modules of other models."""
        if id(module) in self.modules:
            self.depth = max(self.depth - 1, 0)  # a pass that began after an interrupted one counts from 0

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

    def _note_batch(self, top_module: str, inputs: tuple[object, ...]) -> None:
        with hidden_from_run():
            tensors = [value for value in inputs if isinstance(value, Tensor) and not value.is_nested]
            shapes = [tensor.shape for tensor in tensors if tensor.dim() > 1]
            # Ids are (texts, tokens), but features have a third axis: a matrix of them shows no texts.
            token_tensors = [tensor for tensor in tensors if tensor.dim() >= (3 if tensor.is_floating_point() else 2)]
            self.shapes[top_module] = [BatchShape(*tensor.shape[:2]) for tensor in token_tensors]
        if shapes:
            self.batches[top_module] = max(shape[0] for shape in shapes)
            # The second axis comes first: a pair is texts and tokens if an input with features has tokens first.
            self.second_axes[top_module] = {(shape[1], shape[0]) for shape in shapes if len(shape) == 3}
