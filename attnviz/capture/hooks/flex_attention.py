"""Follows scores through the score_mod of flex_attention, which torch runs under vmap where it is not compiled."""

import sys
from collections.abc import Callable
from typing import Any

import torch

from attnviz.capture.calls.readable import why_unreadable
from attnviz.capture.hooks.observing_mode import observers
from attnviz.capture.hooks.patches import Patch

MODULE = "torch._higher_order_ops.flex_attention"  # where torch computes it by ordinary functions (2.5 to 2.13)


def _flex_attention() -> Any:
    """Returns the module of the computation, ``None`` where it has not been imported."""
    return sys.modules.get(MODULE)


def _followed(original: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function that computes scores before and after score_mod and mask_mod, which tells observers."""

    def _math_attention_inner(*args: Any, **kwargs: Any) -> Any:
        before, after = given = original(*args, **kwargs)
        if not torch.compiler.is_compiling() and why_unreadable(before, after) is None:
            for observer in observers():
                with observer.looking():
                    observer.flow.note_same(before, after)
        return given

    return _math_attention_inner


FLEX_PATCHES = (Patch(_flex_attention, "_math_attention_inner", _followed),)
