"""Converts the plain values of options without typer's type adapters, to start faster.

Typer 0.29 converts every value, also an absent one or a default, by pydantic, whose import takes a third of the time in
which a command line is refused. Values that are not plain are left to typer, with its messages.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

INTEGER = re.compile(r"-?[0-9]{1,15}")
NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?")
NOT_PLAIN = object()


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
        """Returns the converted value, or what the parameter's callback returns for it.

        Raises:
            TyperException: if a required value is missing, or the value is of another type.
        """
        converted = NOT_PLAIN if self.parameter.required and value is None else self._plain_value(value)
        if converted is NOT_PLAIN:
            return self.convert_by_typer(context, value)
        callback = self.parameter.callback
        return converted if callback is None else callback(context, self.parameter, converted)

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


def _converted(value: Any, annotation: Any) -> Any:
    """Returns a value of the annotated type, or a path or plainly written number as it; otherwise `NOT_PLAIN`."""
    if type(value) is annotation:
        return value
    if isinstance(value, str):
        if annotation is Path:
            return Path(value)
        if annotation is int and INTEGER.fullmatch(value):
            return int(value)
        if annotation is float and NUMBER.fullmatch(value):
            return float(value)
    return NOT_PLAIN
