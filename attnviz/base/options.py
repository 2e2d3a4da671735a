"""An option: what a field or parameter says of itself for the command line, the Python API and the checks alike."""

import inspect
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from attnviz.base.errors import AttnvizError, known_names, nearest, option

Check = Callable[[str, Any], object]


@dataclass(frozen=True)
class Option:
    """Stands in the ``Annotated`` type of a field or parameter that a user may give by its name.

    Attributes:
        help: what it does, in a sentence.
        check: refuses a value that is none, given the option's name and the value; not called with ``None``.
        panel: of the help, where it is not that of the other options declared with it.
        inspector: whether the full-screen inspector draws by it.
        media: the kinds of media that show it, where not all do.
        needs: another option, without which it means nothing, and a value of that.
        brief: what the short help says of it; only what most people need has this.
        names: gives the names that it takes, each with its meaning, where the check does not know them: for the help
            and for completion, so that they are imported when they are asked for.
    """

    help: str
    check: Check | None = None
    panel: str | None = None
    inspector: bool = True
    media: tuple[str, ...] = ()
    needs: tuple[str, str] | None = None
    brief: str = ""
    names: Callable[[], Mapping[str, str]] | None = None

    @property
    def takes_names(self) -> bool:
        """Whether it takes one of some names."""
        return self.names is not None or isinstance(self.check, OneOf)

    def known_names(self) -> Mapping[str, str]:
        """The names that a user may give, each with its meaning or ""; empty where any value may be right."""
        if self.names is not None:
            return self.names()
        return dict.fromkeys(self.check.known, "") if isinstance(self.check, OneOf) else {}


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


def refuse_alone(given: Iterable[str], declared: Mapping[str, Declared], present: Container[str]) -> None:
    """Raises AttnvizError where an option was given and another one, without which it means nothing, is not present."""
    for name in given:
        needs = declared[name].option.needs if name in declared else None
        if needs is not None and needs[0] not in present:
            raise AttnvizError(f"{option(name)} means nothing on its own; {option(*needs)} beside it works")


def check_options(values: object) -> None:
    """Raises AttnvizError where a field of ``values`` holds what its option refuses."""
    for name, declared in declared_options(type(values)).items():  # type: ignore[arg-type]
        value = getattr(values, name)
        if declared.option.check is not None and value is not None:
            declared.option.check(name, value)


@dataclass(frozen=True)
class OneOf:
    """The check that refuses any other name than the known; ``named`` says what the option is called in it."""

    known: Sequence[str]
    named: Callable[[str], str] = lambda name: name.replace("_", "-")

    def __call__(self, name: str, value: object) -> None:
        """Raises AttnvizError where the value is none of the known names."""
        if value not in self.known:
            meant = nearest(str(value), self.known)
            raise AttnvizError(f"unknown {self.named(name)} {value!r}; {meant}{known_names(self.known)} works")


def listed(names: Sequence[str]) -> Callable[[], Mapping[str, str]]:
    """What gives the names, which need no word of meaning."""
    return lambda: dict.fromkeys(names, "")


def within(low: float, high: float, works: str = "works") -> Check:
    """The check that refuses numbers below ``low`` or above ``high``; ``works`` ends its sentence."""

    def check(name: str, value: float) -> None:
        if not low <= value <= high:
            given = f"{value:g}" if isinstance(value, float) else value
            raise AttnvizError(f"{option(name)} {given} is out of range; {low} to {high} {works}")

    return check
