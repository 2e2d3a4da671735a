"""Defines the public ``from_arrays``, which returns a recording with methods that draw it."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

from attnviz.api.recording import DrawableRecording, drawable
from attnviz.arrays import build
from attnviz.maps.recording import Recording

P = ParamSpec("P")


def _returning_drawable(make_recording: Callable[P, Recording]) -> Callable[P, DrawableRecording]:
    """Returns a function like ``make_recording`` that returns a `DrawableRecording`; signature and docstring stay."""

    @wraps(make_recording)
    def make_drawable(*args: P.args, **kwargs: P.kwargs) -> DrawableRecording:
        return drawable(make_recording(*args, **kwargs))

    return make_drawable


from_arrays = _returning_drawable(build.from_arrays)
