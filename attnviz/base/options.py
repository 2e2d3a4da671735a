"""Declares options once, in the type of a field or parameter, for the command line, the Python API and the checks."""

import inspect
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from attnviz.base.errors import AttnvizError, choices, option

Check = Callable[[str, Any], object]


@dataclass(frozen=True)
class Option:
    """An option that users give by name, declared in the ``Annotated`` type of a field or parameter."""

    help: str  # the sentence of ``--help``
    # raises for an invalid value, given the option's name and the value; never called with ``None``
    check: Check | None = None
    # the panel of ``--help`` that lists it; ``None`` for the panel of the options declared with it
    panel: str | None = None
    inspector: bool = True  # True if the full-screen inspector uses it
    media: tuple[str, ...] = ()  # the media (text, image) that show its effect; empty for all
    # another option without which it has no effect, and an example of that option's value
    needs: tuple[str, str] | None = None
    brief: str = ""  # the sentence of ``-h``; empty for options that ``-h`` does not list
    # returns the names that it takes, each with its meaning, if the check does not list them. It is called only for
    # help and completion, so that the modules of these names are imported late.
    names: Callable[[], Mapping[str, str]] | None = None

    @property
    def takes_names(self) -> bool:
        """True if the names that the option takes can be listed."""
        return self.names is not None or isinstance(self.check, OneOf)

    def known_names(self) -> Mapping[str, str]:
        """Returns the names that a user may give, each with its meaning or ""; empty if the values cannot be listed."""
        if self.names is not None:
            return self.names()
        return dict.fromkeys(self.check.known, "") if isinstance(self.check, OneOf) else {}


class DeclaredOption(NamedTuple):
    """An option as a parameter declares it."""

    option: Option  # the option
    type: Any  # the type of the value that a user gives
    default: Any  # the default of the parameter


@cache
def declared_options(group: Callable[..., object]) -> dict[str, DeclaredOption]:
    """Returns the options that the parameters of a class or function declare, by name, in their order.

    A parameter declares an option if its type is ``Annotated`` with an `Option`; other parameters are left out.
    """
    declarations = {}
    for name, parameter in inspect.signature(group).parameters.items():
        for metadata in getattr(parameter.annotation, "__metadata__", ()):
            if isinstance(metadata, Option):
                declarations[name] = DeclaredOption(metadata, parameter.annotation.__origin__, parameter.default)
    return declarations


def refuse_unmet_needs(
    names: Iterable[str], declarations: Mapping[str, DeclaredOption], present: Container[str]
) -> None:
    """Raises AttnvizError if an option is given without the option that it needs."""
    for name in names:
        needs = declarations[name].option.needs if name in declarations else None
        if needs is not None and needs[0] not in present:
            raise AttnvizError(f"{option(name)} needs {option(needs[0])}; add {option(*needs)}")


def check_options(values: object) -> None:
    """Raises AttnvizError if a field of ``values`` has a value that the field's option refuses; accepts ``None``."""
    for name, declaration in declared_options(type(values)).items():  # type: ignore[arg-type]
        value = getattr(values, name)
        if declaration.option.check is not None and value is not None:
            declaration.option.check(name, value)


@dataclass(frozen=True)
class OneOf:
    """A check that accepts only listed names."""

    known: Sequence[str]  # the names that the option takes
    # returns the noun for the option in the message, given the option's name
    noun_of: Callable[[str], str] = option

    def __call__(self, name: str, value: object) -> None:
        """Raises AttnvizError if the value is not a known name."""
        if value not in self.known:
            raise AttnvizError(f"unknown {self.noun_of(name)} {value!r}; {choices(value, self.known)}")


def name_lister(names: Sequence[str]) -> Callable[[], Mapping[str, str]]:
    """Returns a function that returns these names, each with the meaning ""; for `Option.names`."""
    return lambda: dict.fromkeys(names, "")


def not_blank(name: str, value: str) -> None:
    """Raises AttnvizError for a text without a visible character."""
    if not value.strip():
        raise AttnvizError(f"{option(name)} is empty; write something after it, or leave it out")


def below_one(name: str, value: float) -> None:
    """Raises AttnvizError for a share that is not from 0 to below 1."""
    if not 0 <= value < 1:
        raise AttnvizError(f"{option(name)} {value:g} is out of range; give a number from 0 to below 1")


def in_range(minimum: float, maximum: float, unit: str = "") -> Check:
    """Returns a check that raises AttnvizError for numbers outside a range."""

    def check(name: str, value: float) -> None:
        if not minimum <= value <= maximum:
            number = f"{value:g}" if isinstance(value, float) else value
            span = f"{minimum} to {maximum} {unit}".rstrip()
            raise AttnvizError(f"{option(name)} {number} is out of range; give {span}")

    return check
