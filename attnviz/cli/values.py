"""Converts the plain values of options without typer's type adapters, to start faster.

Typer 0.29 converts every value, also an absent one or a default, by pydantic, whose import takes a third of the time in
which a command line is refused. Values of other types than texts, paths and numbers are left to typer.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

import typer

from attnviz.base.errors import AttnvizError

KINDS = {int: "whole number", float: "number"}  # as messages name them
ROUND_NUMBERS = (10, 200, 1)  # examples for options without a default, each for another range
NOT_PLAIN = object()


class _NotANumber(typer.BadParameter):
    """The refusal of a word that is not the number which its option takes."""

    def format_message(self) -> str:
        """Returns the message without typer's preamble, since the message names the option."""
        return self.message


def convert_plain_values(parameters: Iterable[Any]) -> None:
    """Lets each parameter of a command convert its plain values itself; changes the parameters."""
    for parameter in parameters:
        descriptor = getattr(parameter, "type_descriptor", None)
        if descriptor is not None and not hasattr(parameter.process_value, "converts_plain_values"):
            parameter.process_value = _PlainFirst(parameter, descriptor.annotation)


class _PlainFirst:
    """The conversion of a parameter's value: by this module if the value is plain, otherwise by typer."""

    converts_plain_values = True

    def __init__(self, parameter: Any, annotation: Any) -> None:
        self.parameter = parameter
        self.annotation = annotation
        self.convert_by_typer = parameter.process_value

    def __call__(self, context: Any, value: Any) -> Any:
        """Returns the converted value, or what the parameter's callback returns for it."""
        try:
            plain_value = NOT_PLAIN if self.parameter.required and value is None else self._plain_value(value)
        except ValueError:
            raise _NotANumber(self._not_a_number_line(value, context), context, self.parameter) from None
        if plain_value is NOT_PLAIN:
            return self.convert_by_typer(context, value)
        callback = self.parameter.callback
        return plain_value if callback is None else callback(context, self.parameter, plain_value)

    def _plain_value(self, value: Any) -> Any:
        """Returns the converted value, or `NOT_PLAIN`; an absent list is an empty tuple, as in typer."""
        is_list = self.parameter.multiple or self.parameter.nargs == -1
        if value is None:
            return () if is_list else None
        if not is_list:
            return _converted(value, self.annotation)
        [item_type] = get_args(self.annotation) or (None,)
        items = [_converted(item, item_type) for item in value]
        return NOT_PLAIN if NOT_PLAIN in items else items

    def _not_a_number_line(self, value: Any, context: Any) -> str:
        """Returns the refusal of a word, with an example: the default, or a number that the option accepts."""
        name, default = self.parameter.opts[0], self.parameter.default
        declaration = getattr(context.command.callback, "declared", {}).get(self.parameter.name)
        examples = (default,) if isinstance(default, int | float) else ROUND_NUMBERS
        for example in examples:
            try:
                if declaration is not None and declaration.option.check is not None:
                    declaration.option.check(self.parameter.name, example)
            except AttnvizError:
                continue
            break
        return f"{name} {value!r} is not a {KINDS[self.annotation]}; give one, such as {name} {example:g}"


def _converted(value: Any, annotation: Any) -> Any:
    """Returns the value if it has the annotated type, or the path or number that a word spells; else `NOT_PLAIN`."""
    if type(value) is annotation:
        return value
    if isinstance(value, str):
        if annotation is Path:
            return Path(value)
        if annotation in KINDS:
            # As in typer, 5.0 is a whole number, and digits of other alphabets are refused, by the encoding.
            return annotation(re.sub(rb"\.0+\s*$", b"", value.encode("ascii")))
    return NOT_PLAIN
