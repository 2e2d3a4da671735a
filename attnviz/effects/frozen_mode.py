"""Runs a model with all frozen that is not linear in the residual stream, so that gradients follow the stream alone.

Attention patterns, scales of norms, gates of attention outputs and MLPs keep their values in this run. What is left is
linear in the stream at every token, so that the product of a value and its gradient is what it adds. What is not
linear, such as an MLP's output, has no gradient of its own and enters the stream as a constant.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.weak import WeakIdKeyDictionary

from attnviz.base.arrays import Float64Array
from attnviz.capture.assembly.output_path import (
    ADDITION_SIGNS,
    COPYING,
    DIVISIONS,
    MOVING,
    MULTIPLICATIONS,
    NEGATIONS,
    FrozenNorm,
)
from attnviz.capture.assembly.output_projection import added_bias
from attnviz.capture.flow.functions import TorchCall, tensors_in
from attnviz.capture.flow.products import PRODUCTS, contraction
from attnviz.capture.flow.sites import ModuleIndex
from attnviz.capture.hooks.torch_functions import DOT_PRODUCT
from attnviz.effects.module_calls import Edit, EditingMode, Key, ModuleCalls, replaced

# Functions whose result is linear in their inputs, apart from products, sums, norms, and multiplications
LINEAR_NAMES = "mean sum view_as_complex view_as_real index_select index_copy index_copy_ copy_".split()
LINEAR = COPYING | MOVING | frozenset((*NEGATIONS, *LINEAR_NAMES))
WIDE = 16  # outputs for each input of an unembedding
PUTTING = frozenset(["where", "masked_fill", "masked_fill_", "masked_scatter", "masked_scatter_"])
RESHAPING = frozenset("to type_as expand_as view_as reshape_as".split())  # only the first argument gives numbers
ALLOCATING_PREFIX = "new_"  # of functions whose results hold no numbers of their arguments, as those in "_like"
WRITING = frozenset(["__setitem__"])
NORMS = frozenset(["layer_norm", "rms_norm"])
SCALING = MULTIPLICATIONS | DIVISIONS
SHAPING = LINEAR | SCALING | NORMS
ADDING = frozenset([*PRODUCTS, *ADDITION_SIGNS, *NORMS, *PUTTING])


@dataclass(frozen=True, eq=False)
class ScoreProduct:
    """A product of queries and keys that gives scores, before or after they are scaled."""

    queries: Tensor
    keys: Tensor
    query_axis: int  # the axis of the queries' features
    key_axis: int  # the axis of the keys' features
    multiply: Callable[[Tensor, Tensor], Tensor]

    def scores(self, *, query: Tensor | None = None, key: Tensor | None = None) -> Tensor:
        """Returns the products as ``(heads, queries, keys)``, with one vector in place of all queries or all keys.

        The queries are frozen unless ``key`` is given.
        """
        queries, keys = self.queries if key is not None else self.queries.detach(), self.keys
        if query is not None:
            queries = query.reshape(_shape_along(queries, self.query_axis)).expand_as(queries)
        if key is not None:
            keys = key.reshape(_shape_along(keys, self.key_axis)).expand_as(keys)
        with torch.enable_grad():
            products = self.multiply(queries, keys)
            return products.reshape(-1, *products.shape[-2:])


def _shape_along(tensor: Tensor, axis: int) -> list[int]:
    """Returns the shape of a vector along one axis of a tensor."""
    shape = [1] * tensor.dim()
    shape[axis] = -1
    return shape


class Received(torch.autograd.Function):
    """The identity; a function receives the gradient, and returns the one that is followed, or ``None`` for none."""

    @staticmethod
    def forward(context: Any, features: Tensor, receive: Callable[[Tensor], Tensor | None]) -> Tensor:  # noqa: D102
        context.set_materialize_grads(False)
        context.receive = receive
        return features.view_as(features)

    @staticmethod
    def backward(context: Any, gradient: Tensor | None) -> tuple[Tensor | None, None]:  # noqa: D102
        return None if gradient is None else context.receive(gradient), None


class _FewRows(torch.autograd.Function):
    """A product with a wide matrix, such as an unembedding, whose gradient is followed at the rows that have one."""

    @staticmethod
    def forward(context: Any, features: Tensor, weight: Tensor) -> Tensor:
        context.save_for_backward(weight)
        return functional.linear(features, weight)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (weight,) = context.saved_tensors
        rows = gradient.reshape(-1, gradient.shape[-1])
        has_gradient = rows.any(-1)
        result = rows.new_zeros(len(rows), weight.shape[1])
        result[has_gradient] = rows[has_gradient] @ weight
        return result.reshape(*gradient.shape[:-1], -1), None


@dataclass(eq=False)
class Constant:
    """What enters the stream from outside of it, with what it adds to the logit at each token."""

    place: str  # the path of the module that computed it, or of the parameter
    depends_on_input: bool
    rows: int = 1  # the number of its rows; a bias has one for all tokens
    is_parameter: bool = False  # True if `place` is the path of a parameter or buffer
    adds: Tensor | None = None  # ``(tokens,)``; ``None`` if the logit does not depend on it

    def amounts(self, tokens: int, position: int) -> Float64Array:
        """Returns what it adds at each token, ``(tokens,)``; a single number belongs to the predicting token."""
        adds = np.zeros(1) if self.adds is None else self.adds.cpu().numpy()
        return adds if len(adds) == tokens else np.where(np.arange(tokens) == position, adds.sum(), 0.0)


class FrozenMode(EditingMode):
    """A mode in which gradients follow the residual stream alone, from the embedding of the text on.

    A tensor is followed if it requires a gradient. Functions that are linear in followed tensors give followed ones;
    all others give tensors without gradient.
    """

    def __init__(self, calls: ModuleCalls, edits: Mapping[Key, Edit], model: nn.Module, tokens: int) -> None:
        super().__init__(calls, edits)
        self.tokens = tokens
        self.modules = ModuleIndex(model)
        self.origins = {id(tensor): name for name, tensor in (*model.named_parameters(), *model.named_buffers())}
        self.constants: list[Constant] = []
        self.is_silent = False  # True while gradients are not what something adds
        self.is_direct = False  # True while gradients are followed no further than to what attention gives
        self.modules_of_heads: set[str] = set()  # the paths of modules whose heads have edits
        self.obstacle = ""  # the path of the module that last computed something not linear from the stream
        self.reached: dict[str, None] = {}  # the paths of modules with frozen scales that the last gradients reached
        # tensors that depend on the text and are not followed, with the path of the module that computed each
        self.places: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self.attended: WeakIdKeyDictionary = WeakIdKeyDictionary()  # outputs of attention, before their projection
        self.tanh_input: Tensor | None = None  # the followed input of the last tanh, which may cap the logits
        # the last function of each module, by path, that multiplies followed queries by followed keys
        self.scores: dict[str, ScoreProduct] = {}
        self.block_inputs: dict[str, Tensor | None] = {}  # by the path of the block

    def compute(self, name: str, func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        """Calls a function and returns its result, followed if it is linear in what is followed."""
        if name.startswith(ALLOCATING_PREFIX) or name.endswith("_like"):
            return func(*args, **kwargs)
        tensors = tensors_in(args[:1] if name in RESHAPING else (args, tuple(kwargs.values())))
        if not any(tensor.requires_grad for tensor in tensors):
            return self._compute_apart(name, func, args, kwargs, tensors)
        if name == DOT_PRODUCT or name in PRODUCTS:
            self._keep_scores(name, func, args, kwargs)
        arguments = self._linear_arguments(name, args, kwargs)
        if arguments is not None:
            return self._compute_followed(name, func, arguments, args, kwargs, tensors)
        with torch.enable_grad():
            result = func(*_detached(tuple(args)), **{key: _detached(value) for key, value in kwargs.items()})
        if name == "tanh":
            self.tanh_input = next(tensor for tensor in tensors if tensor.requires_grad)
        if any(tensor.is_floating_point() for tensor in tensors_in((result,))):
            self.obstacle = self.running_module
        self._mark_dependent(result, self.running_module)
        return result

    def _compute_apart(
        self, name: str, func: Callable[..., Any], args: Any, kwargs: dict[str, Any], tensors: list[Tensor]
    ) -> Any:
        """Calls a function of tensors that are not followed; the embedding of the text is the first that is."""
        # with gradients enabled also where none are needed, as views made without may not be written into with them
        with torch.enable_grad():
            result = func(*args, **kwargs)
        if name == "embedding" and self._embeds_text(args, kwargs):
            return self._begin(result)
        dependent = [tensor for tensor in tensors if tensor in self.places]
        if dependent:  # a part that is scaled or normed is still that of its module
            place = self.places[max(dependent, key=Tensor.numel)] if name in SHAPING else self.running_module
            self._mark_dependent(args[0] if result is None else result, place)  # what writes returns nothing
        return result

    def _compute_followed(
        self,
        name: str,
        func: Callable[..., Any],
        arguments: Sequence[Any],
        args: Any,
        kwargs: dict[str, Any],
        tensors: list[Tensor],
    ) -> Any:
        """Calls a function that is linear in what is followed, and notes what it adds and what it freezes."""
        constants = [] if name not in ADDING else list(self._added_constants(name, func, args, kwargs))
        with torch.enable_grad():
            if _is_unembedding(name, args, kwargs):
                result = _FewRows.apply(*args[:2])  # type: ignore[no-untyped-call]
            else:
                result = _frozen_norm(name, func, args, kwargs) if name in NORMS else func(*arguments, **kwargs)
        self._mark_dependent(result, self.running_module)
        dependent = [tensor for tensor in tensors if tensor.requires_grad or tensor in self.places]
        mixes_tokens = name == DOT_PRODUCT or (name in PRODUCTS and len(dependent) > 1)
        is_attended = any(tensor in self.attended for tensor in tensors if tensor.requires_grad)
        if mixes_tokens or (name not in PRODUCTS and is_attended):
            self.attended.update((tensor, True) for tensor in tensors_in((result,)))
        if isinstance(result, Tensor):
            for constant in constants:
                self.note(result, constant)
            if mixes_tokens and self.running_module not in self.modules_of_heads:
                self.note(result, result, is_mixed=True)
            if name in NORMS or (name in SCALING and len(dependent) > 1):
                result.register_hook(partial(self._note_frozen, self.running_module))  # type: ignore[no-untyped-call]
        return result

    def _note_frozen(self, place: str, gradient: Tensor | None) -> None:
        if gradient is not None:
            self.reached.setdefault(place)

    def note(self, result: Tensor, constant: Tensor, is_mixed: bool = False) -> None:
        """Notes a constant that is added to a followed tensor; gradients later give what it adds.

        With ``is_mixed``, the result of attention without known heads is a constant on direct paths.
        """
        origin = self.origins.get(id(constant), "")
        depends_on_input = constant in self.places
        place = self.places[constant] if depends_on_input else origin or self.running_module
        rows = constant[..., :1].numel() if constant.dim() else 1
        entry = Constant(place, depends_on_input or is_mixed, rows, bool(origin))
        self.constants.append(entry)
        constant = constant.detach().clone() if not origin else constant  # later functions may write into its memory

        def receive(gradient: Tensor | None) -> Tensor | None:
            # ``None``: the path from the number to this constant was cut
            if gradient is None or self.is_silent or (is_mixed and not self.is_direct):
                return None
            rows = (gradient * constant.to(gradient)).sum(-1).double()
            is_token_axis = [size == self.tokens for size in rows.shape]
            if any(is_token_axis):
                rows = rows.movedim(is_token_axis.index(True), 0).reshape(self.tokens, -1).sum(-1)
            else:  # a single row, that of the predicted token
                rows = rows.sum().reshape(1)
            entry.adds = rows if entry.adds is None else entry.adds + rows
            return torch.zeros_like(gradient) if is_mixed else None

        result.register_hook(receive)  # type: ignore[no-untyped-call]

    def note_input(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        """Keeps the followed input of a block whose path is a key of `block_inputs`."""
        path = self.modules.names.get(id(module), "")
        if path in self.block_inputs and args and _is_followed(args[0]):
            self.block_inputs[path] = args[0]

    def _keep_scores(self, name: str, func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> None:
        """Keeps a product of followed queries and followed keys."""
        if name == DOT_PRODUCT and args[0].requires_grad and args[1].requires_grad:
            self.scores[self.running_module] = ScoreProduct(args[0], args[1], -1, -1, _product_of_heads)
        product = None if name == DOT_PRODUCT else contraction(name, args, kwargs)
        if product is None or not (product.left.requires_grad and product.right.requires_grad):
            return
        if name == "baddbmm":  # what it adds to the product is a bias, and no score
            args = (torch.zeros_like(args[0]), *args[1:])
        left, right, summed = product.left, product.right, product.summed_letters

        def multiply(queries: Tensor, keys: Tensor) -> Tensor:
            args_and_kwargs = replaced(replaced((args, kwargs), left, queries), right, keys)
            result: Tensor = func(*args_and_kwargs[0], **args_and_kwargs[1])
            return result

        if len(summed) == 1:
            self.scores[self.running_module] = ScoreProduct(
                left,
                right,
                product.left_letters.index(*summed),
                product.right_letters.index(*summed),
                multiply,
            )

    @property
    def running_module(self) -> str:
        """The path of the running module."""
        return self.calls.running_path(self.modules.names)

    def _embeds_text(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """True if an embedding has a row for each token, and is not that of an encoder's text."""
        ids = args[0] if args else kwargs["input"]
        running = [self.modules.names.get(frame.key[1], "").lower() for frame in self.calls.frames if frame.key]
        is_in_encoder = any("encoder" in name for name in running) and not any("decoder" in name for name in running)
        return bool(ids.numel() == self.tokens) and not is_in_encoder

    def _begin(self, embedding: Tensor) -> Tensor:
        """Returns the embedding as a followed tensor, which a model may write into."""
        with torch.enable_grad():
            stream = embedding.detach().requires_grad_().clone()
        self._mark_dependent(embedding, self.running_module)
        self.note(stream, embedding)
        return stream

    def _mark_dependent(self, result: Any, place: str) -> None:
        """Notes that the tensors of a result that are not followed depend on the text."""
        for tensor in tensors_in((result,)):
            if not tensor.requires_grad and (tensor.is_floating_point() or tensor.dtype == torch.bool):
                self.places[tensor] = place

    def _linear_arguments(self, name: str, args: Any, kwargs: dict[str, Any]) -> Sequence[Any] | None:
        """Returns the arguments of a function with frozen factors detached; ``None`` if it is not linear in others."""
        if name in LINEAR or name in WRITING or name in ADDITION_SIGNS or name in PUTTING:
            # where numbers of the stream choose, as in an activation function, nothing is linear
            chosen_by = args[0 if name == "where" else 1] if name in PUTTING else None
            return None if isinstance(chosen_by, Tensor) and chosen_by in self.places else list(args)
        if name in NORMS:
            return list(args) if args and args[0].requires_grad else None
        if name == DOT_PRODUCT:
            query, key, *rest = args
            is_followed = bool(rest) and rest[0].requires_grad
            return [query.detach(), key.detach(), rest[0], *map(_detached, rest[1:])] if is_followed else None
        if name in PRODUCTS:
            product = contraction(name, args, kwargs)
            is_linear = product is not None and product.left.requires_grad != product.right.requires_grad
            return list(args) if is_linear else None
        if name in MULTIPLICATIONS or (name in DIVISIONS and kwargs.get("rounding_mode") is None):
            for place in (0,) if name in DIVISIONS else (0, 1):
                variable, factor = args[place], args[1 - place]
                if isinstance(variable, Tensor) and variable.requires_grad and self._may_freeze(factor, variable):
                    frozen = list(args)
                    frozen[1 - place] = _detached(factor)
                    return frozen
        return None

    def _may_freeze(self, factor: Any, variable: Tensor) -> bool:
        """True if a factor is a constant, one number for each token, or the gate of an attention output."""
        if not isinstance(factor, Tensor) or not (factor.requires_grad or factor in self.places):
            return True
        has_one_feature = factor.dim() == 0 or factor.shape[-1] == 1 < variable.shape[-1]
        return has_one_feature or (variable in self.attended and factor not in self.attended)

    def _added_constants(
        self, name: str, func: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> Iterator[Tensor]:
        """Yields what a function adds to what is linear in the followed tensors."""
        if name in PRODUCTS:
            bias = added_bias(name, args, kwargs)
            if bias is not None and not bias.requires_grad:
                yield bias
        elif name in ADDITION_SIGNS:
            for operand, sign in ((args[0], 1), (kwargs.get("other", args[-1]), ADDITION_SIGNS[name])):
                if isinstance(operand, Tensor) and not operand.requires_grad:
                    factor = sign * kwargs.get("alpha", 1) if operand is not args[0] else 1
                    is_kept = factor == 1 and (operand is not args[0] or id(operand) in self.origins)
                    constant = operand if is_kept else operand * factor  # the function may write into the operand
                    if operand in self.places:
                        self.places[constant] = self.places[operand]
                    yield constant
        elif name in NORMS:
            bias = args[3] if len(args) > 3 else kwargs.get("bias")
            if bias is not None and name == "layer_norm":
                yield bias
        elif name in PUTTING:
            without = [torch.zeros_like(each) if _is_followed(each) else each for each in args]
            constant = func(*without, **kwargs)
            if constant.any():
                self._mark_dependent(constant, self.running_module)
                yield constant


def _product_of_heads(queries: Tensor, keys: Tensor) -> Tensor:
    """Returns the products of queries and keys, ``(batch, heads, queries, keys)``; heads may share keys."""
    return queries @ keys.repeat_interleave(queries.shape[1] // keys.shape[1], dim=1).mT


def _is_unembedding(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """True for a linear map without bias that has many times as many outputs as inputs."""
    is_plain = name == "linear" and len(args) > 1 and added_bias(name, args, kwargs) is None
    return is_plain and args[1].dim() == 2 and len(args[1]) >= WIDE * args[1].shape[1]


def _is_followed(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def _detached(value: Any) -> Any:
    """Returns a value, or the values of a tuple or list, with tensors that need no gradient."""
    if isinstance(value, Tensor):
        return value.detach() if value.requires_grad else value
    if type(value) in (tuple, list):
        return type(value)(map(_detached, value))
    return value


def _frozen_norm(name: str, func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Tensor:
    """Returns the result of a norm as a function that is linear in its input."""
    norm = FrozenNorm.of_call(TorchCall(name, func, _detached(args), kwargs, None))
    assert norm is not None
    features = args[0]
    rows = features.reshape(*norm.scale.shape[:-1], norm.width)
    rows = (rows - rows.mean(-1, keepdim=True) if norm.centres else rows) * norm.scale.to(rows)
    rows = rows if norm.weight is None else rows * norm.weight
    result: Tensor = rows if norm.bias is None else rows + norm.bias.flatten()
    return result if result.shape == features.shape else result.reshape(features.shape)  # no view, which loses hooks
