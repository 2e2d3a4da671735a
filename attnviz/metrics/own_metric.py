"""Makes a metric of a user's own function, checks what it returns, and adds it to the table of metrics.

The function is one of the three kinds of `attnviz.metrics.metrics`, which the name of its first parameter tells:

- ``rows``: it returns a number for each query, ``(heads, queries)``;
- ``grid``: it returns the cells whose weight is the number of a query, as `Grid.cells` or True and False;
- ``columns``: it returns a number for each head, ``(heads,)``.

Its name is the metric's, with hyphens, and the first line of its docstring is its meaning. What else a metric has are
the defaults of parameters that the function need not read: ``unit``, ``needs``, ``only_seeing``, ``smallest_first``.
"""

import hashlib
import inspect
import marshal
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from attnviz.base.errors import AttnvizError, choices, or_list
from attnviz.base.reading import open_file
from attnviz.metrics.grid import Array, Cells, Columns, Grid, Rows
from attnviz.metrics.measure import NAME, RANGES, ROUNDING, Need
from attnviz.metrics.metrics import METRICS, Metric

FIELDS: Mapping[str, type] = {"unit": str, "needs": str, "only_seeing": bool, "smallest_first": bool}
HEADER_WIDTH = 9
Function = TypeVar("Function", bound=Callable[..., Any])
BUILT_IN = frozenset(METRICS)


def add_metric(function: Function) -> Function:
    """Adds a metric of your own, which every list, filter, atlas, page and survey of this process then has.

    Args:
        function: a function whose first parameter is ``rows``, ``grid`` or ``columns``, named like the metric. The
            first line of its docstring says what the number means. Defaults of further parameters say more, and need
            not be read: ``unit`` is "share" (0 to 1), "bits", "nats", "tokens" or "" (any number; the default but for
            ``grid``); ``needs`` are words such as "self-attention sequence"; ``only_seeing`` leaves out queries that
            see none of the cells; ``smallest_first`` sorts heads by the smallest number first.

    Returns:
        The function, so that this is a decorator, too.

    Raises:
        AttnvizError: if the function is no metric, or if its name is that of another one. What it returns is checked
            when heads are measured.

    Example:
        >>> import attnviz, torch
        >>> @attnviz.add_metric
        ... def participation(rows):
        ...     '''number of keys that share the weight evenly'''
        ...     return 1 / (rows.key_weights ** 2).sum(-1)
        >>> module = attnviz.MultiHeadAttention(embed_dim=8, num_heads=2)
        >>> with attnviz.record(module) as recording:
        ...     output = module(torch.rand(1, 5, 8))
        >>> recording.head_table(sort="participation")["participation"].shape
        (2,)
    """
    metric = metric_of(function)
    if metric.name in BUILT_IN:
        raise AttnvizError(f"there already is a metric {metric.name!r}; give your function another name")
    METRICS[metric.name] = metric
    return function


def metric_of(function: Callable[..., Any]) -> Metric:
    """Returns the metric that a user's function declares and computes."""
    written_name = getattr(function, "__name__", "")
    if not written_name:
        raise AttnvizError(f"a {type(function).__name__} has no name, which a metric needs; give a function")
    name = written_name.replace("_", "-")
    if not re.fullmatch(NAME, name):
        raise AttnvizError(f"{written_name!r} is no name of a metric; name it in small letters, such as row_kurtosis")
    parameters = list(inspect.signature(function).parameters.values())
    parameter = parameters[0].name if parameters else ""
    if parameter not in KINDS:
        raise AttnvizError(
            f"the first parameter of {written_name} is {parameter or 'missing'}; name it {or_list(KINDS)}"
        )
    field, checked = KINDS[parameter]
    declared: dict[str, Any] = {"unit": "share" if parameter == "grid" else ""}
    for declaration in parameters[1:]:
        if declaration.name not in FIELDS:
            raise AttnvizError(
                f"{written_name} has a parameter {declaration.name!r}; {choices(declaration.name, FIELDS)}"
            )
        if type(declaration.default) is not FIELDS[declaration.name]:
            kind = "text" if FIELDS[declaration.name] is str else "True or False"
            raise AttnvizError(
                f"{written_name} has a parameter {declaration.name!r} whose default is no {kind}; give one"
            )
        declared[declaration.name] = declaration.default
    if declared["unit"] not in RANGES:
        advice = choices(declared["unit"], [*filter(None, RANGES), '""'])
        raise AttnvizError(f"{written_name} has the unit {declared['unit']!r}; {advice}")
    needs = {need.name.lower().replace("_", "-"): need for need in Need}
    words = declared.pop("needs", "").split()
    unknown_word = next((word for word in words if word not in needs), None)
    if unknown_word is not None:
        raise AttnvizError(f"{written_name} needs {unknown_word!r}; {choices(unknown_word, needs)}")
    meaning = (inspect.getdoc(function) or "").partition("\n")[0].rstrip(".")
    computed: dict[str, Any] = {field: partial(checked, function, declared["unit"])}
    return Metric(
        name,
        name[:HEADER_WIDTH],
        meaning=meaning or f"the number of {written_name}",
        needs=frozenset(needs[word] for word in words),
        is_own=True,
        code=_digest_of_code(function),
        **declared,
        **computed,
    )


def _digest_of_code(function: Callable[..., Any]) -> str:
    """Returns a digest of the file of a function, since it may call others there; without a file, of its own code."""
    code: Any = getattr(inspect.unwrap(function), "__code__", None)
    try:
        with open_file(Path(code.co_filename)) as file:
            source = file.read()
    except (AttributeError, AttnvizError):  # a callable object, or typed into an interpreter
        source = b"" if code is None else marshal.dumps(code)
    return hashlib.blake2b(source, digest_size=16).hexdigest()


def _checked_rows(function: Callable[[Rows], Any], unit: str, rows: Rows) -> Array:
    no_numbers = rows.not_applicable()
    with np.errstate(all="ignore"):  # of a row without weight, whose number is left out below
        numbers = function(rows)
    if isinstance(numbers, np.ndarray) and not isinstance(no_numbers, np.ndarray):  # numpy read a survey's tensors
        numbers = no_numbers.new_tensor(numbers)
    _refuse_shape(function, numbers, tuple(no_numbers.shape), "(heads, queries)")
    numbers = rows.where(rows.grid.visible_counts > 1, numbers)
    _refuse_range(function, unit, numbers)
    if numbers.ndim > 2:  # of torch: a survey counts the queries that have a number for all heads of a text together
        lacks_number = numbers.isnan()
        if bool((lacks_number.any(1) != lacks_number.all(1)).any()):
            raise AttnvizError(
                f"{function.__name__} is NaN for some heads of a query and a number for others; give each head a "
                "number, or none: NaN by rows.grid alone"
            )
    return numbers


def _checked_columns(function: Callable[[Columns], Any], unit: str, columns: Columns) -> Array:
    with np.errstate(all="ignore"):
        numbers = function(columns)
    _refuse_shape(function, numbers, columns.received.shape[:-1], "(heads,)")
    _refuse_range(function, unit, numbers)
    return numbers


def _checked_cells(function: Callable[[Grid], Any], unit: str, grid: Grid) -> Cells:
    cells = function(grid)
    if hasattr(cells, "broadcast_mask") or hasattr(cells, "is_counted"):
        return cells
    shape, grid_shape = tuple(getattr(cells, "shape", ())), tuple(grid.visible.shape)
    rows_of_keys = {(*grid_shape[:-2], rows, grid_shape[-1]) for rows in (1, grid_shape[-2])}
    if shape not in rows_of_keys | {each[-2:] for each in rows_of_keys} or "bool" not in str(cells.dtype):
        raise AttnvizError(
            f"{function.__name__} returned {_described(cells)}; return True and False for each cell, (queries, keys) = "
            f"{grid_shape}, or what grid.cells or grid.at_offsets returns"
        )
    # The cells of one row for all queries have an axis of texts in a survey.
    return grid.cells(cells[None] if len(shape) < len(grid_shape) and shape[0] == 1 else cells)


def _refuse_shape(function: Callable[..., Any], numbers: Any, shape: tuple[int, ...], axes: str) -> None:
    is_real = any(word in str(getattr(numbers, "dtype", "")) for word in ("float", "int", "bool"))
    if not is_real or tuple(numbers.shape) != shape:
        raise AttnvizError(
            f"{function.__name__} returned {_described(numbers)}; return real numbers of the shape {axes} = {shape}"
        )


def _refuse_range(function: Callable[..., Any], unit: str, numbers: Array) -> None:
    low, high = RANGES[unit]
    outside = (numbers < low - ROUNDING) | (numbers > high + ROUNDING)
    if bool(outside.any()):
        unit_words = f"its unit {unit!r}" if unit else "a metric"
        raise AttnvizError(
            f"{function.__name__} returned {float(numbers[outside][0]):.4g}, and {unit_words} goes from {low:.7g} to "
            f"{high:.7g}; scale it" + (", or declare another unit, such as unit=''" if unit else "")
        )


def _described(value: Any) -> str:
    """Returns the dtype and shape of an array, or the type of another value, in words."""
    if not hasattr(value, "dtype"):
        return f"a value of type {type(value).__name__}"
    return f"an array of {str(value.dtype).removeprefix('torch.')} of the shape {tuple(value.shape)}"


# by the name of a function's first parameter: the field of a metric that holds it, and what checks its result
KINDS: Mapping[str, tuple[str, Callable[..., Any]]] = {
    "rows": ("rows", _checked_rows),
    "grid": ("cells", _checked_cells),
    "columns": ("columns", _checked_columns),
}
