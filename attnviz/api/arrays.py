"""from_arrays(...): a recording that draws itself, made of what any library computed."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

from attnviz.api.recording import DrawableRecording, drawable
from attnviz.arrays import build
from attnviz.maps.recording import Recording

P = ParamSpec("P")


def _drawing(make: Callable[P, Recording]) -> Callable[P, DrawableRecording]:
    """Returns a function that gives its recordings the methods that draw them."""

    @wraps(make)
    def made(*args: P.args, **kwargs: P.kwargs) -> DrawableRecording:
        return drawable(make(*args, **kwargs))

    return made


from_arrays = _drawing(build.from_arrays)
