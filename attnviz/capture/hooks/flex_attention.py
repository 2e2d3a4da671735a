"""Follows scores through the score_mod of flex_attention, which torch runs under vmap if it is not compiled."""

import sys
from collections.abc import Callable
from typing import Any

import torch

from attnviz.capture.calls.readable import unreadable_kind
from attnviz.capture.hooks.observing_mode import observers
from attnviz.capture.hooks.patches import Patch

MODULE = "torch._higher_order_ops.flex_attention"  # torch 2.5 to 2.13 compute it there by ordinary functions


def _flex_attention() -> Any:
    """Returns torch's module that computes flex_attention without a compiler; ``None`` if it was not imported."""
    return sys.modules.get(MODULE)


def _showing_score_changes(original: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a wrapper of torch's function for score_mod and mask_mod; it shows the scores to the observers."""

    def _math_attention_inner(*args: Any, **kwargs: Any) -> Any:
        """Calls ``original``, and returns its result: the scores before and after the change."""
        result = original(*args, **kwargs)
        scores, changed_scores = result
        if not torch.compiler.is_compiling() and unreadable_kind(scores, changed_scores) is None:
            for observer in observers():
                with observer.guarded():
                    observer.flow.note_elementwise(scores, changed_scores)
        return result

    return _math_attention_inner


FLEX_PATCHES = (Patch(_flex_attention, "_math_attention_inner", _showing_score_changes),)
