"""Follows a run at one token through its linear operations, with the scales of norms frozen.

Sums and products with constants are linear in their inputs, and so are norms once their scale is frozen at its value in
this run. A number at the end of such a path is therefore a sum of terms, one for each value where the path begins.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from math import prod
from typing import Any
from weakref import ref

import torch
from torch import Tensor

from attnviz.attention.kernels import EXACT_DTYPES
from attnviz.capture.assembly import output_path
from attnviz.capture.assembly.output_path import ADDITION_SIGNS, DIVISIONS, MULTIPLICATIONS, NORMS, FrozenNorm
from attnviz.capture.assembly.output_projection import added_bias, operand_places
from attnviz.capture.flow.functions import TorchCall
from attnviz.capture.flow.products import PRODUCTS

RESHAPING = frozenset("to type_as expand_as view_as reshape_as".split())  # only the first argument gives numbers
ALLOCATION_PREFIXES = ("new_",)  # of functions whose results hold no numbers of their arguments
Pullback = Callable[[Tensor], Tensor]
COPYING = output_path.COPYING | frozenset(
    "view reshape unsqueeze squeeze flatten expand expand_as transpose permute view_as swapaxes __get__ "
    "masked_scatter".split()  # which writes pictures over their placeholders, and leaves the other tokens as they are
)
MEANS = frozenset(["mean"])
NO_ROW: tuple[Tensor, int] = torch.zeros(0), 0  # the row and the number of rows of a tensor without one
INDEXING = frozenset(["__getitem__", "select", "narrow", "index_select"])


@dataclass(eq=False)
class PathValue:
    """The value of a tensor of the run at the token."""

    serial: int  # its number in the order in which values were computed
    row: Tensor  # ``(features,)``, in float32 or float64; empty if the tensor has no row for the token
    rows: int  # the number of tokens of the tensor; 1 if all tokens have the same row, 0 if it has no row for the token
    depends_on_input: bool  # True if it depends on the model's inputs
    place: str  # the path of the module that computed it
    origin: str = ""  # the name of the parameter or buffer; "" for other tensors
    # the values of which it is a linear function, each with the function that maps a gradient at this value to the
    # gradient at the source; ``None`` if it is not linear in its inputs
    sources: list[tuple["PathValue", Pullback]] | None = None
    is_frozen: bool = False  # True if a factor that depends on the text was frozen to make it linear
    # the input of the hyperbolic tangent that computed it; ``None`` for other functions
    tanh_input: "PathValue | None" = None


@dataclass(frozen=True, eq=False)
class PathLeaf:
    """A value where the path begins, because it is not linear in its inputs."""

    value: PathValue  # the value
    gradient: Tensor  # ``(features,)``, the gradient of the number at the end of the path with respect to the value

    @property
    def amount(self) -> float:
        """The term of this leaf in the number at the end of the path."""
        return float(self.gradient.double() @ self.value.row.double())


@dataclass(eq=False)
class LinearPath:
    """A recorder of the values that a run computes at one token."""

    tokens: int  # the number of tokens in the input
    position: int  # the index of the token
    names: dict[int, str]  # the names of parameters and buffers, by ``id``
    place: Callable[[], str]  # returns the path of the running module
    # the values of tensors by ``id``, each with a weak reference that tells if the id was reused
    values_by_id: dict[int, tuple[Any, PathValue]] = field(default_factory=dict)
    serials: Iterator[int] = field(default_factory=count)  # the numbers of values

    def follow(self, call: TorchCall) -> None:
        """Records the result of a torch function that has returned, with its sources if it is linear in its inputs.

        Inputs without a record are recorded as constants. Of a tuple, the first item is the result. Ignores results
        that are no tensors, or that a function inside this one has recorded. The result of an assignment to a part of a
        tensor is the tensor.
        """
        result = call.result[0] if isinstance(call.result, tuple) and call.result else call.result
        if call.name == "__setitem__":
            result = call.args[0]
        if not isinstance(result, Tensor):
            return
        inputs = [
            argument for argument in _flat((call.args, tuple(call.kwargs.values()))) if isinstance(argument, Tensor)
        ]
        if self._is_known(result) and not any(result is tensor for tensor in inputs):
            return  # the functions inside this one have recorded the result
        input_values = [self.value(tensor) for tensor in inputs]
        row_and_count = self._picked_row(call, result) if call.name in INDEXING else self._row(result)
        # reshaping only reads the shapes of the other inputs
        number_inputs = input_values[:1] if call.name in RESHAPING else input_values
        depends_on_input = any(value.depends_on_input for value in number_inputs)
        if call.name.startswith(ALLOCATION_PREFIXES) or call.name.endswith("_like"):
            depends_on_input = False
        has_row = row_and_count is not None and result.is_floating_point()
        row, row_count = row_and_count if row_and_count is not None and has_row else NO_ROW
        value = PathValue(next(self.serials), row, row_count, depends_on_input, place=self.place())
        if has_row:
            self._link(value, call, result)
        self._store(result, value)

    def value(self, tensor: Tensor, is_input: bool = False) -> PathValue:
        """Returns the value of a tensor; one without a record is the model's input, or a constant as parameters are."""
        if self._is_known(tensor):
            return self.values_by_id[id(tensor)][1]
        row, rows = self._row(tensor) or NO_ROW
        origin = self.names.get(id(tensor), "")
        value = PathValue(next(self.serials), row, rows, depends_on_input=is_input, place=self.place(), origin=origin)
        self._store(tensor, value)
        return value

    def leaves(self, end: PathValue, gradient: Tensor) -> tuple[list[PathLeaf], list[str]]:
        """Returns the values where the path begins, and the names of the modules with frozen factors, the latest first.

        Args:
            gradient: ``(features,)``, the gradient of the number with respect to ``end``.
        """
        leaves: list[PathLeaf] = []
        frozen_modules: dict[str, None] = {}
        gradients = {end.serial: (end, gradient)}
        queue = [-end.serial]
        # The latest value comes first, so that the gradients of all its uses are summed before it is pulled back.
        # Serials in the queue are negative, since heapq pops the smallest number.
        while queue:
            value, value_gradient = gradients.pop(-heapq.heappop(queue))
            if value.is_frozen:
                frozen_modules[value.place] = None
            if value.sources is None:
                leaves.append(PathLeaf(value, value_gradient))
                continue
            for source, pullback in value.sources:
                source_gradient = pullback(value_gradient)
                if len(source.row) == 1 < len(source_gradient):  # one number that was broadcast
                    source_gradient = source_gradient.sum().reshape(1)
                source_gradient = source_gradient.to(source.row.device)
                if source.serial in gradients:
                    gradients[source.serial] = source, gradients[source.serial][1] + source_gradient
                else:
                    gradients[source.serial] = source, source_gradient
                    heapq.heappush(queue, -source.serial)
        return leaves, [*frozen_modules]

    def _is_known(self, tensor: Tensor) -> bool:
        """True if this tensor, and not an earlier one with its ``id``, has been recorded."""
        return id(tensor) in self.values_by_id and self.values_by_id[id(tensor)][0]() is tensor

    def _store(self, tensor: Tensor, value: PathValue) -> None:
        """Records the value of a tensor."""
        self.values_by_id[id(tensor)] = ref(tensor), value

    def _row(self, tensor: Tensor) -> tuple[Tensor, int] | None:
        """Returns the row of a tensor ``(..., tokens, features)`` at the token, with its number of rows."""
        if not tensor.is_floating_point() or tensor.device.type == "meta":
            return None
        width = tensor.shape[-1] if tensor.dim() else 1
        rows = prod(tensor.shape[:-1])
        if rows not in (1, self.tokens) or not width:
            return None
        index = 0 if rows == 1 else self.position
        return _at_least_float32(tensor.detach().reshape(rows, width)[index]).clone(), rows

    def _picked_row(self, call: TorchCall, result: Tensor) -> tuple[Tensor, int] | None:
        """Returns the row at the token in an indexing function's result, and the number of rows; `None` without one."""
        source = call.args[0] if call.args else None
        if not isinstance(source, Tensor) or not result.is_floating_point() or not result.dim():
            return None
        if source.dim() < 2 or self.value(source).rows != self.tokens or prod(result.shape[:-1]) == self.tokens:
            return self._row(result)
        # The same function applied to the indices of tokens shows which tokens it picks.
        indices = torch.arange(self.tokens, device=source.device).reshape(*source.shape[:-1], 1).expand(source.shape)
        picked_indices = call.func(indices, *call.args[1:], **call.kwargs)
        if picked_indices.shape[-1:] != source.shape[-1:]:
            return None
        matches = (picked_indices[..., 0].flatten() == self.position).nonzero().flatten()
        if not len(matches):
            return None
        rows = result.detach().reshape(-1, result.shape[-1])
        return _at_least_float32(rows[matches[0]]).clone(), 1

    def _link(self, value: PathValue, call: TorchCall, result: Tensor) -> None:
        """Sets the sources of a value if the function that computed it is linear in its inputs."""
        name, args, kwargs = call.name, call.args, call.kwargs
        tensors = [argument for argument in args if isinstance(argument, Tensor)]
        first_input = self.value(tensors[0]) if tensors else None
        if name in PRODUCTS:
            value.sources = self._product_sources(name, args, kwargs, value)
        elif first_input is None or not first_input.rows:
            return
        elif name in COPYING or name in INDEXING:
            input_row = _at_least_float32(first_input.row)
            if len(input_row) == len(value.row) and torch.equal(input_row, value.row.to(first_input.row)):
                value.sources = [(first_input, _unchanged_gradient)]
        elif name in ADDITION_SIGNS:
            terms = self._operands((args[0], kwargs["other"] if len(args) < 2 else args[1]))
            factor = torch.tensor(ADDITION_SIGNS[name] * float(kwargs.get("alpha", 1)))
            if terms is not None:
                value.sources = [(terms[0], _unchanged_gradient), (terms[1], partial(_scaled_gradient, factor))]
        elif name in MULTIPLICATIONS or (name in DIVISIONS and kwargs.get("rounding_mode") is None):
            operands = self._operands(args[:2])
            pairs = [] if operands is None else [operands] if name in DIVISIONS else [operands, operands[::-1]]
            for variable, factor_value in pairs:
                is_frozen = factor_value.depends_on_input and len(factor_value.row) == 1 < len(variable.row)
                if is_frozen or not factor_value.depends_on_input:  # else linear in the other operand at most
                    multiplier = 1 / factor_value.row if name in DIVISIONS else factor_value.row
                    value.sources = [(variable, partial(_scaled_gradient, multiplier))]
                    value.is_frozen = is_frozen
                    return
        elif name in MEANS and len(value.row) == 1 and len(first_input.row) > 1 and value.rows == first_input.rows:
            width = len(first_input.row)
            value.sources = [(first_input, lambda gradient: gradient.expand(width) / width)]
        elif name in NORMS:
            self._link_norm(value, call, first_input)
        elif name == "tanh":
            value.tanh_input = first_input

    def _operands(self, arguments: Sequence[Any]) -> tuple[PathValue, PathValue] | None:
        """Returns the values of two operands, tensors or Python numbers; ``None`` if one has no row at the token."""
        values = []
        for argument in arguments:
            if isinstance(argument, Tensor):
                values.append(self.value(argument))
            elif isinstance(argument, int | float):
                row = torch.tensor([float(argument)])
                place = self.place()
                values.append(PathValue(next(self.serials), row, rows=1, depends_on_input=False, place=place))
        if len(values) != 2 or not all(value.rows for value in values):
            return None
        return values[0], values[1]

    def _product_sources(
        self, name: str, args: Sequence[Any], kwargs: dict[str, Any], value: PathValue
    ) -> list[tuple[PathValue, Pullback]] | None:
        """Returns the sources of a matrix product with constant weights: its operand, and its bias if it has one."""
        for place in operand_places(name, args, kwargs):
            if self.value(place.product.right).depends_on_input or not self.value(place.operand).depends_on_input:
                continue
            weight, matrix = place.weight(), place.matrix()
            if weight.shape[1] != len(value.row) or len(matrix) not in (1, self.tokens):
                return None
            operand = self.value(place.operand)
            if len(operand.row) != len(weight):  # the operand has an axis of heads; as a matrix it has the full row
                row = matrix[0 if len(matrix) == 1 else self.position]
                operand.row, operand.rows, operand.sources = _at_least_float32(row).clone(), len(matrix), None
            sources: list[tuple[PathValue, Pullback]] = [(operand, partial(_weighted_gradient, weight))]
            bias = added_bias(name, args, kwargs)
            return sources if bias is None else [*sources, (self.value(bias), _unchanged_gradient)]
        return None

    def _link_norm(self, value: PathValue, call: TorchCall, first_input: PathValue) -> None:
        """Sets the sources of a norm over the features: its input with the scale frozen, and its bias."""
        norm = FrozenNorm.of_call(call, first_input.row)
        if norm is None:
            return
        value.is_frozen = True
        value.sources = [(first_input, partial(norm.pull_back, scale=float(norm.scale)))]
        if norm.bias is not None:
            value.sources.append((self.value(norm.bias), _unchanged_gradient))


def _unchanged_gradient(gradient: Tensor) -> Tensor:
    """Returns the gradient itself: the pullback of a copy, or of a term of a sum."""
    return gradient


def _scaled_gradient(factor: Tensor, gradient: Tensor) -> Tensor:
    """Returns the gradient times a factor: the pullback of a multiplication."""
    return gradient * factor.to(gradient)


def _at_least_float32(tensor: Tensor) -> Tensor:
    """Returns a tensor in float32; a tensor in float32 or float64 is returned unchanged."""
    return tensor if tensor.dtype in EXACT_DTYPES else tensor.float()


def _weighted_gradient(weight: Tensor, gradient: Tensor) -> Tensor:
    """Returns the product of a weight and a gradient, ``(columns,)``, at least in float32."""
    nonzero_indices = gradient.nonzero().flatten()
    if len(nonzero_indices) * 2 < len(gradient):
        weight, gradient = weight[:, nonzero_indices], gradient[nonzero_indices]
    # one element of the weight gives the dtype and the device
    return _at_least_float32(weight) @ gradient.to(_at_least_float32(weight[:1, :1]))


def _flat(values: Any) -> Iterator[Any]:
    """Yields the values in nested tuples and lists."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from _flat(value)
        else:
            yield value
