"""Makes types readable on the page of the Python names."""

import inspect
import re
from typing import Annotated, Any, get_args, get_origin

from sphinx.application import Sphinx
from sphinx.util.typing import stringify_annotation

import attnviz

ARRAY = re.compile(r"numpy\.ndarray\[tuple\[Any, \.\.\.\], numpy\.dtype\[numpy\.(\w+)\]\]")
RECORDING = re.compile(r"(?:~?attnviz[\w.]*\.)?(?:Drawable)?Recording\b")  # both classes are attnviz.Recording


def without_metadata(app: Sphinx, kind: str, name: str, value: Any, *_: Any) -> None:
    """Replaces ``Annotated[str, Option(...)]`` by ``str`` in the types that Sphinx noted, and links recordings."""
    noted = app.env.current_document.autodoc_annotations.get(name)
    if not noted:
        return
    for parameter in inspect.signature(value).parameters.values():
        if get_origin(parameter.annotation) is Annotated:
            noted[parameter.name] = stringify_annotation(get_args(parameter.annotation)[0], "smart")
    noted.update({each: RECORDING.sub("~attnviz.Recording", kind_of_value) for each, kind_of_value in noted.items()})


def with_short_arrays(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Writes ``NDArray[float32]`` for the type of an array, which Sphinx spells out."""
    if "body" in context:
        context["body"] = ARRAY.sub(r"NDArray[\1]", context["body"])


def setup(app: Sphinx) -> dict[str, bool]:
    """Connects the replacements, and gives classes their public names: Sphinx would call them aliases."""
    for name in attnviz.EXPORTS:
        value = getattr(attnviz, name)
        if isinstance(value, type):
            value.__name__ = name
    app.connect("autodoc-process-signature", without_metadata)
    app.connect("html-page-context", with_short_arrays)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
