"""Follows an attention output to its projection: through copies, gates, sums of heads, and norms.

A gate scales each query's output by channel, so what a key adds stays linear in its value. So does a norm, with its
scale frozen at the value in this run.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, NamedTuple
from weakref import ref

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from attnviz.capture.flow.functions import TorchCall, tensors_in
from attnviz.capture.flow.moved_rows import MOVING_GATHERED
from attnviz.capture.flow.nodes import Contraction
from attnviz.capture.flow.products import PRODUCTS, contraction

# Functions whose result has the numbers of their first argument, in its shape
COPYING = frozenset(
    "contiguous clone to float double half bfloat16 type type_as dropout dropout_ detach alias cpu cuda "
    "native_dropout".split()
)
MOVING = frozenset({*MOVING_GATHERED, "gather", "take_along_dim", "pad", "rot90", "squeeze_", "unsqueeze_"})
ADDITION_SIGNS = {"add": 1, "add_": 1, "__add__": 1, "__radd__": 1, "__iadd__": 1, "sub": -1, "sub_": -1, "__sub__": -1}
ADDITIONS = frozenset(name.strip("_") for name in ADDITION_SIGNS)
MULTIPLICATIONS = frozenset("mul mul_ multiply __mul__ __rmul__ __imul__".split())
DIVISIONS = frozenset("div div_ divide true_divide __truediv__ __itruediv__".split())
NEGATIONS = ("neg", "neg_", "__neg__")
NORMS = ("layer_norm", "rms_norm", "native_layer_norm")
QUANTIZED = re.compile(r"quanti[sz]|bitsandbytes")  # in the name of the Python module of a class
IN_PLACE = ("__setitem__", "__iadd__", "__imul__", "__itruediv__", "__isub__")


@dataclass(frozen=True, eq=False)
class FrozenNorm:
    """A norm over the last axes of its input, which is linear with its scale frozen at the value in this run."""

    scale: Tensor  # ``(..., 1)``, the factor of each row, in float64
    width: int  # the number of features that it is over
    centres: bool  # True if the mean is subtracted first
    weight: Tensor | None  # the factor of each feature; ``None`` for 1
    bias: Tensor | None

    @classmethod
    def of_call(cls, call: TorchCall, rows: Tensor | None = None) -> "FrozenNorm | None":
        """Returns the norm that a function of `NORMS` computes, of its input or of these rows ``(..., features)``.

        ``None`` if the rows have another width.
        """
        centres = call.name != "rms_norm"
        names = ["input", "normalized_shape", "weight", *(["bias"] if centres else []), "eps"]
        arguments = dict(zip(names, call.args, strict=False)) | call.kwargs
        width = prod(arguments["normalized_shape"])
        rows = arguments["input"].flatten(-len(arguments["normalized_shape"])) if rows is None else rows
        if rows.shape[-1] != width:
            return None
        default_eps = 1e-5 if centres else torch.finfo(arguments["input"].dtype).eps  # as in torch
        eps = default_eps if arguments.get("eps") is None else arguments["eps"]
        rows = rows.double()
        centred_rows = rows - rows.mean(-1, keepdim=True) if centres else rows
        scale = (centred_rows.square().mean(-1, keepdim=True) + eps).rsqrt()
        weight = arguments.get("weight")
        weight = None if weight is None else weight.detach().flatten()
        return cls(scale, width, centres, weight, arguments.get("bias"))

    @property
    def factors(self) -> Tensor:
        """The factor of each feature in each row, ``(..., features)``; without the weight if the mean is subtracted."""
        scale = self.scale.float()
        return (
            scale.expand(*scale.shape[:-1], self.width) if self.weight is None or self.centres else scale * self.weight
        )

    def pull_back(self, gradient: Tensor, scale: float = 1.0) -> Tensor:
        """Returns the gradient at the input, ``(features, ...)``, given that at the result, with this scale.

        The features may be those of several rows, one after the other.
        """
        rows = gradient.reshape(-1, self.width, *gradient.shape[1:])
        if self.weight is not None:
            rows = rows * self.weight.to(rows).view(-1, *(1,) * (gradient.dim() - 1))
        rows = rows * scale
        rows = rows - rows.mean(1, keepdim=True) if self.centres else rows  # centring is its own transpose
        return rows.flatten(0, 1)


class _Term(NamedTuple):
    """The elements of an attention output that enter the elements of a tensor, each times a factor."""

    numbers: Tensor  # the number of each element in the output, from 1; 0 for none. Same shape as the tensor
    factors: Tensor  # same shape, at least in float32

    def map(self, move: Callable[[Tensor], Tensor]) -> "_Term":
        """Returns the term of a tensor whose elements were moved."""
        return _Term(move(self.numbers), move(self.factors))

    def times(self, factor: Tensor | float) -> "_Term":
        """Returns the term with its factors multiplied, which may broadcast it."""
        factors = self.factors * factor
        return _Term(self.numbers.expand(factors.shape), factors)


Terms = Callable[[], list[_Term]]


@dataclass(frozen=True, eq=False)
class _Step:
    """A tensor on the path."""

    result: Tensor  # the tensor, whose memory is not used again while it is held
    terms: Terms  # computes its terms, once they are needed
    is_moved_alone: bool = True  # True if only copies lie between the output and the tensor
    # the norm that subtracts a mean from the terms, with only copies after it; ``None`` if none does
    norm: FrozenNorm | None = None

    def terms_at(self, tensor: Tensor) -> list[_Term]:
        """Returns the terms of a view of the tensor."""
        base, terms = self.result, self.terms()
        if (base.shape, base.stride(), base.data_ptr()) == (tensor.shape, tensor.stride(), tensor.data_ptr()):
            return terms
        size = base.untyped_storage().nbytes() // base.element_size()

        def viewed(numbers: Tensor) -> Tensor:
            memory = numbers.new_zeros(size)
            memory.as_strided(base.shape, base.stride(), base.storage_offset()).copy_(numbers)
            return memory.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

        return [term.map(viewed) for term in terms]


def quantized_part(model: nn.Module, path: str) -> str:
    """Returns a reason why no linear map of a module can be followed: one of its parts is quantized; "" if none is."""
    parts = model.get_submodule(path).named_modules()
    names = [name for name, part in parts if QUANTIZED.search(type(part).__module__)]  # the output projection is last
    names = [name for name in names if not name.endswith("_packed_params")]
    return f"its part {names[-1]} is quantized, so what it adds cannot be split among heads" if names else ""


class OutputPath:
    """The tensors that are computed from an attention output by functions that are linear in it.

    Attributes:
        output: ``(batch, heads, queries, features)``.
        obstacle: the function that ends the path before any linear map; "" while none has.
        has_rest: True if something that is not of this output was added.
        overwriting: the function, not linear in the output, that wrote into its memory; "" while none has.
        reuse: the function that takes the output once more after its linear map, such as a gate that the map computes;
            "" while none has.
    """

    def __init__(self, output: Tensor) -> None:
        self.output, self.obstacle, self.has_rest, self.reuse = output, "", False, ""
        self.overwriting = ""
        # The steps by the address of their memory, so that views need not be followed
        self.steps = {_memory(output): _Step(output, self._own_terms)}
        # Functions of the output that are not linear, by the ``id`` of their results, with a reference to these
        self.ends: dict[int, tuple[Any, str]] = {}

    @property
    def refusal(self) -> str:
        """Says that no projection was found, and which function stands between, or takes the output once more."""
        if self.reuse:
            return f"beside a linear map of its attention output {self.reuse} takes it, as a gate made of it does"
        obstacle = self.obstacle or self.overwriting
        ending = f": {obstacle} stands between, which is not linear in it" if obstacle else ""
        if obstacle in ADDITIONS:
            ending = f": something else is added to it first, by {obstacle}"
        elif obstacle in PRODUCTS or obstacle.startswith("conv"):
            ending = f": {obstacle} takes it in parts, or together with other outputs"
        return f"no observed linear map takes its attention output, also not with gates and norms between{ending}"

    def follow(self, call: TorchCall, others: Sequence["OutputPath"]) -> None:
        """Notes what a function computed from the output; another path's tensor may be added to this path's."""
        are_all_read = not call.name.endswith("_as")  # else the others give a shape or a dtype
        inputs = tensors_in((*call.args, *call.kwargs.values()) if are_all_read else call.args[:1])
        sources = {id(tensor): step for tensor in inputs if (step := self.steps.get(_memory(tensor))) is not None}
        end = next(filter(None, map(self.end_of, inputs)), "")
        if not sources and not end:
            return
        writes = call.name in IN_PLACE or (call.name.endswith("_") and not call.name.startswith("__"))
        target = call.args[0] if writes and call.args else None
        results = tensors_in((target if call.result is None else call.result,))
        for result in results:
            if not result.is_floating_point() or (result is not target and _memory(result) in self.steps):
                continue  # a view, or what a function inside this one has noted
            step = self._step_to(result, call, sources, others) if sources else None
            if step is not None:
                self.steps[_memory(result)] = step
            elif target is None or id(target) in sources:
                self.steps.pop(_memory(result), None)
                name = call.name.strip("_")
                if target is not None and _memory(target) == _memory(self.output):
                    self.overwriting = name
                name = f"{name} by a gate made of it" if sources and end in PRODUCTS else end or name
                self.ends[id(result)] = ref(result), name

    def note_reuse(self, call: TorchCall) -> None:
        """Notes that a function takes the output, after a linear map did, and does not only copy it."""
        if call.name in COPYING or call.name in MOVING:
            self.follow(call, [])
            return
        read = (*(call.args[1:] if call.name in IN_PLACE else call.args), *call.kwargs.values())
        results = tensors_in((call.result,))
        is_new = any(result.is_floating_point() and _memory(result) not in self.steps for result in results)
        if is_new and any(_memory(tensor) in self.steps for tensor in tensors_in(read)):
            self.reuse = self.reuse or call.name.strip("_")

    def end(self, obstacle: str) -> None:
        """Ends the path at a function, whose name is kept, and lets go of its tensors; does nothing without a name."""
        if obstacle:
            self.obstacle = self.obstacle or obstacle
            self.steps.clear()
            self.ends.clear()

    def end_of(self, tensor: Tensor) -> str:
        """Returns the name of the function that ended the path before a tensor; "" if none did."""
        reference, name = self.ends.get(id(tensor), (None, ""))
        return name if reference is not None and reference() is tensor else ""

    def is_scaled(self, tensor: Tensor) -> bool:
        """True if a tensor is on the path and cannot be found by the output's numbers, which it has not, or no more."""
        step = self.steps.get(_memory(tensor))
        return step is not None and (not step.is_moved_alone or bool(self.overwriting))

    def norm_of(self, tensor: Tensor) -> FrozenNorm | None:
        """Returns the norm whose mean is to be subtracted from a tensor's terms; ``None`` if there is none."""
        return self.steps[_memory(tensor)].norm

    def terms(self, tensor: Tensor) -> list[_Term]:
        """Returns the terms of which a tensor on the path is the sum, apart from what is not of the output."""
        return self.steps[_memory(tensor)].terms_at(tensor)

    def _own_terms(self) -> list[_Term]:
        numbers = torch.arange(1, self.output.numel() + 1, device=self.output.device).view(self.output.shape)
        return [_Term(numbers, torch.ones((), device=self.output.device).expand(self.output.shape))]

    def _step_to(
        self, result: Tensor, call: TorchCall, sources: Mapping[int, _Step], others: Sequence["OutputPath"]
    ) -> _Step | None:
        """Returns the step to a function's result; ``None`` if the function is not linear in the output."""
        name, args, kwargs = call.name, call.args, call.kwargs
        is_moved = name in COPYING or name in MOVING
        is_moved_alone = is_moved and all(source.is_moved_alone for source in sources.values())
        norm = next((source.norm for source in sources.values() if source.norm is not None), None)
        if norm is not None and (name not in COPYING or not result.is_contiguous()):
            return None
        terms: Terms | None = None
        on_path = [id(operand) in sources for operand in args[:2]]

        def source_terms(argument: Any) -> list[_Term]:
            source = sources.get(id(argument))
            return [] if source is None else source.terms_at(argument)

        def scaled(argument: Any, factor: Any) -> list[_Term]:
            return [term.times(factor) for term in source_terms(argument)]

        if name in COPYING:
            terms = partial(source_terms, args[0])
        elif name in MOVING:
            terms = partial(_moved_terms, call, source_terms)
        elif name in NEGATIONS:
            terms = partial(scaled, args[0], -1.0)
        elif name in NORMS and on_path[:1] == [True] and len(sources) == 1:
            own_norm = FrozenNorm.of_call(call)
            if own_norm is not None and result.shape == args[0].shape:
                norm = own_norm if own_norm.centres else None
                terms = partial(scaled, args[0], own_norm.factors.reshape(result.shape))
        elif name in MULTIPLICATIONS or (
            name in DIVISIONS and kwargs.get("rounding_mode") is None and on_path[:1] == [True]
        ):
            if sum(on_path) == 1 and len(args) > 1 and self._may_scale(args[on_path.index(False)]):
                factor = args[on_path.index(False)]
                factor = factor.float() if isinstance(factor, Tensor) else float(factor)
                terms = partial(scaled, args[on_path.index(True)], 1 / factor if name in DIVISIONS else factor)
        elif name in ADDITION_SIGNS and len(args) > 1:
            sign = ADDITION_SIGNS[name] * float(kwargs.get("alpha", 1))
            rest = [each for each, is_on_path in zip(args[:2], on_path, strict=True) if not is_on_path]
            if all(isinstance(each, Tensor) and any(_memory(each) in other.steps for other in others) for each in rest):
                self.has_rest |= bool(rest)
                size = torch.ones((), device=result.device).expand(result.shape)
                terms = lambda: [*scaled(args[0], size), *scaled(args[1], size * sign)]  # noqa: E731
        elif (product := contraction(name, args, kwargs)) is not None and not product.summed_letters:
            product = product if id(product.left) in sources else product.with_operands_swapped()
            if id(product.right) not in sources and self._may_scale(product.right):
                terms = partial(_product_terms, product, source_terms)
        return None if terms is None else _Step(result, terms, is_moved_alone, norm)

    def _may_scale(self, factor: object) -> bool:
        """True for a factor that is none of the output's numbers, apart from a norm's one number for each row."""
        end = self.end_of(factor) if isinstance(factor, Tensor) else ""
        is_of_row = isinstance(factor, Tensor) and (not factor.dim() or factor.shape[-1] == 1)
        return not end or (is_of_row and end not in PRODUCTS)


def _moved_terms(call: TorchCall, source_terms: Callable[[Tensor], list[_Term]]) -> list[_Term]:
    """Returns the terms of the result of a function that moves elements, such as one that joins tensors."""
    terms = {id(tensor): source_terms(tensor) for tensor in tensors_in(call.args) if tensor.is_floating_point()}

    def moved(index: int, part: int) -> Tensor:
        def numbers_of(argument: Any) -> Any:
            if not isinstance(argument, Tensor) or id(argument) not in terms:
                return argument
            if index < len(terms[id(argument)]):
                return terms[id(argument)][index][part]
            return torch.zeros(argument.shape, dtype=(torch.long, torch.float32)[part], device=argument.device)

        result: Tensor = call.func(*tree_map(numbers_of, call.args), **call.kwargs)
        return result

    return [_Term(moved(index, 0), moved(index, 1)) for index in range(max(map(len, terms.values())))]


def _product_terms(product: Contraction, source_terms: Callable[[Tensor], list[_Term]]) -> list[_Term]:
    """Returns the terms of a product without a sum, such as a gate by ``einsum``, given those of the left operand."""

    def aligned(tensor: Tensor, letters: str) -> Tensor:
        order = [letters.index(letter) for letter in product.letters if letter in letters]
        return tensor.permute(order)[tuple(slice(None) if letter in letters else None for letter in product.letters)]

    factor = aligned(product.right.float(), product.right_letters) * product.factor
    left_terms = source_terms(product.left)
    return [term.map(lambda each: aligned(each, product.left_letters)).times(factor) for term in left_terms]


def _memory(tensor: Tensor) -> int:
    """Returns the address of a tensor's memory; 0 if it has none that can be read."""
    try:
        return tensor.untyped_storage().data_ptr() if tensor.numel() else 0
    except (RuntimeError, NotImplementedError):
        return 0
