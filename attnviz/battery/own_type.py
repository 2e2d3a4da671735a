"""Makes a type of heads of a user's own function, which yields texts with the cells that count and their controls."""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np

from attnviz.base.arrays import Float64Array, IntArray
from attnviz.base.errors import AttnvizError, option
from attnviz.battery.probed_model import Probe, ProbedModel, SkippedTypeError
from attnviz.battery.probes import TypeTest
from attnviz.metrics.own_metric import KINDS

CONTROL = "control:"  # begins the line of a docstring that says what the controls are


@dataclass(frozen=True)
class OwnType:
    """A user's function of a `ProbedModel` that tests for a type of heads.

    It yields, for each text, the ids of its tokens, ``(tokens,)``; the cells whose weight is the score,
    ``(tokens, tokens)``, True and False or what each cell counts; and a list of the cells of the controls, as many for
    each text. The first line of its docstring says what the score is, and a line that begins with ``Control:`` what the
    controls are.
    """

    function: Callable[[ProbedModel], Iterable[Any]]

    def __post_init__(self) -> None:
        """Raises AttnvizError if the function is a metric."""
        first_name = next(iter(inspect.signature(self.function).parameters), "")
        if first_name in KINDS:
            raise AttnvizError(
                f"{self.function.__name__} takes {first_name}, as a metric does, and {option('types')} needs a "
                "function of a model, which yields texts with the cells of a type; give one, or leave it out"
            )

    @property
    def name(self) -> str:
        """The name of the type: the function's, in words."""
        return self.function.__name__.replace("_", " ")

    @property
    def meaning(self) -> str:
        """What the score is."""
        return self._lines[0].rstrip(".") if self._lines else f"the score of {self.function.__name__}"

    @property
    def control(self) -> str:
        """What the controls are."""
        control = next((line for line in self._lines if line.lower().startswith(CONTROL)), "")
        return control[len(CONTROL) :].strip().rstrip(".") or "other cells"

    @property
    def _lines(self) -> list[str]:
        return (inspect.getdoc(self.function) or "").splitlines()

    def test(self, model: ProbedModel) -> TypeTest:
        """Returns the probes that the function yields for a model.

        Raises:
            AttnvizError: if it yields none, or what cannot be a probe; or if it reads a text that the model does not
                know.
        """
        if model.read is None:
            model = replace(model, read=_refuse_text)
        test = TypeTest()
        for number, given in enumerate(self.function(model), 1):
            if not isinstance(given, tuple) or len(given) != 3:
                raise self._refusal(number, f"{_described(given)}; yield ids, cells and a list of controls")
            ids, cells, controls = np.asarray(given[0]), given[1], list(given[2])
            if ids.ndim != 1 or ids.dtype.kind not in "iu" or not len(ids):
                raise self._refusal(number, f"ids that are {_described(ids)}; yield whole numbers, (tokens,)")
            if test.texts and len(controls) != len(test.controls):
                raise self._refusal(number, f"{len(controls)} controls after {len(test.controls)}; yield as many each")
            if not controls:
                raise self._refusal(number, "no control; yield at least two, which tell how far chance takes a score")
            test.texts.append(self._probe(number, ids, cells))
            test.controls.extend([] for _ in controls[len(test.controls) :])
            for control, control_cells in zip(test.controls, controls, strict=True):
                control.append(self._probe(number, ids, control_cells))
        if not test.texts:
            raise AttnvizError(f"{self.function.__name__} yields no text; yield ids, cells and a list of controls")
        return test

    def _probe(self, number: int, ids: IntArray, cells: Any) -> Probe:
        counted: Float64Array = np.asarray(cells)
        if counted.shape != (len(ids), len(ids)) or counted.dtype.kind not in "biuf":
            shape = f"(tokens, tokens) = ({len(ids)}, {len(ids)})"
            raise self._refusal(number, f"cells that are {_described(counted)}; yield an array {shape}")
        if not np.isfinite(counted).all() or not counted.any():
            raise self._refusal(number, "cells of which none counts, or some are not finite; yield some that count 1")
        return Probe(ids.astype(np.int64), counted)

    def _refusal(self, number: int, reason: str) -> AttnvizError:
        return AttnvizError(f"{self.function.__name__} yields for text {number} {reason}")


def _refuse_text(text: str) -> NoReturn:
    raise SkippedTypeError("the model knows no language")


def _described(value: Any) -> str:
    """Returns the dtype and shape of an array, or the type of another value, in words."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of the shape {value.shape}"
    return f"a value of type {type(value).__name__}"
