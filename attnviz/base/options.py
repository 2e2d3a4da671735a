"""An option: what a field or parameter says of itself for the command line, the Python API and the checks alike."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from attnviz.base.errors import AttnvizError, known_names, option

Check = Callable[[str, Any], object]


@dataclass(frozen=True)
class Option:
    """Stands in the ``Annotated`` type of a field or parameter that a user may give by its name.

    Attributes:
        help: what it does, in a sentence.
        check: refuses a value that is none, given the option's name and the value; not called with ``None``.
        panel: of the help, where it is not that of the other options declared with it.
        inspector: whether the full-screen inspector draws by it.
    """

    help: str
    check: Check | None = None
    panel: str | None = None
    inspector: bool = True


class Declared(NamedTuple):
    """A parameter with its option, the type of its values as a user writes them, and its default."""

    option: Option
    type: Any
    default: Any


@cache
def declared_options(group: Callable[..., object]) -> dict[str, Declared]:
    """The options among the parameters of a class or function, by name and in their order."""
    return {
        name: Declared(option, parameter.annotation.__origin__, parameter.default)
        for name, parameter in inspect.signature(group).parameters.items()
        for option in getattr(parameter.annotation, "__metadata__", ())
        if isinstance(option, Option)
    }


def check_options(values: object) -> None:
    """Raises AttnvizError where a field of ``values`` holds what its option refuses."""
    for name, declared in declared_options(type(values)).items():  # type: ignore[arg-type]
        value = getattr(values, name)
        if declared.option.check is not None and value is not None:
            declared.option.check(name, value)


def one_of(known: Sequence[str], named: Callable[[str], str] = lambda name: name.replace("_", "-")) -> Check:
    """The check that refuses any other name than the known; ``named`` says what the option is called in it."""

    def check(name: str, value: object) -> None:
        if value not in known:
            raise AttnvizError(f"unknown {named(name)} {value!r}; {known_names(known)} works")

    return check


def within(low: float, high: float, works: str = "works") -> Check:
    """The check that refuses numbers below ``low`` or above ``high``; ``works`` ends its sentence."""

    def check(name: str, value: float) -> None:
        if not low <= value <= high:
            given = f"{value:g}" if isinstance(value, float) else value
            raise AttnvizError(f"{option(name)} {given} is out of range; {low} to {high} {works}")

    return check
