"""Computes direct logit attribution: what each head, each of its keys, and every other part adds to a logit."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attnviz.base.errors import AttnvizError
from attnviz.effects.frozen_run import FrozenRun
from attnviz.effects.logit_parts import LogitPart, LogitParts, PartKind
from attnviz.effects.measures import logits_in
from attnviz.effects.observed_heads import HeadFinder

TOLERANCE = 1e-2  # relative to the logit, or to the largest part if that is larger; a larger difference is refused
KINDS = ("embedding", "head", "mlp", "other", "bias")  # in the order in which a layer adds them


def observed_logits(model: nn.Module, output: Any, finder: HeadFinder) -> Tensor:
    """Returns the logits at the token of a run, ``(vocabulary,)``; a copy, so that the output can go."""
    logits = logits_in(output)
    if logits is None:
        raise AttnvizError(
            f"no unembedding was found: the output of {type(model).__name__} has no logits of tokens; "
            "use a language model"
        )
    return finder.at_position(logits).clone()


def logit_parts(run: FrozenRun, logits: Tensor, token: int, versus: int | None = None) -> LogitParts:
    """Returns the parts of a token's logit, or of its difference from the logit of the token ``versus``.

    If the model has a soft cap, they are parts of the logit before it.

    Args:
        logits: ``(vocabulary,)``, those that the model computed at the token.

    Source: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits"; Wang et al. 2023, section 3.
    """
    for wanted in (token, versus):
        if wanted is not None and not 0 <= wanted < len(logits):
            raise AttnvizError(f"no token id {wanted}; choose 0 to {len(logits) - 1}")
    value, finder, name = (
        run.pull_back_logit(token, versus, is_direct=True),
        run.finder,
        type(run.finder.model).__name__,
    )
    logit = value if run.cap else float(logits[token].double() - (0 if versus is None else logits[versus].double()))

    found = [run.part_of(constant) for constant in run.mode.constants if constant.adds is not None]
    for edges in run.edges:
        if edges.received:
            site = edges.heads.site
            for head, keys in enumerate(edges.sums().sum(1), edges.heads.first_head):
                head_name, terms = run.name_of(edges, head), keys.astype(np.float32)
                found.append(LogitPart(head_name, "head", float(keys.sum()), site.layer, head, terms, site.module))
    parts: dict[tuple[str, PartKind], LogitPart] = {}
    for part in found:  # parts of equal name and kind are added up
        earlier = parts.get((part.name, part.kind))
        if earlier is not None:
            has_keys = earlier.keys is not None and part.keys is not None
            key_terms = earlier.keys + part.keys if has_keys else None  # type: ignore[operator]
            part = replace(part, adds=earlier.adds + part.adds, keys=key_terms)
        parts[part.name, part.kind] = part

    def order(part: LogitPart) -> tuple[int, int, int]:
        outside = -1 if part.kind == "embedding" else 10**6  # before the first layer, or after the last
        return outside if part.layer is None else part.layer, KINDS.index(part.kind), part.head or 0

    total = sum(part.adds for part in parts.values())
    found_parts = LogitParts(
        parts=tuple(sorted(parts.values(), key=order)),
        logit=logit,
        difference=abs(total - logit),
        token=token,
        versus=versus,
        position=finder.position,
        frozen=tuple(run.mode.reached),
        capped=bool(run.cap),
        model=name,
        silent_layers=finder.silent_layers,
    )
    refuse_difference(found_parts.difference, total, found_parts, finder, f"the parts found for the logit of {name}")
    return found_parts


def refuse_difference(difference: float, total: float, parts: LogitParts, finder: HeadFinder, name: str) -> None:
    """Raises AttnvizError if a sum is further from a logit than rounding explains; what is less is said as its residue.

    In half precision, each part may be off by a rounding of its own.
    """
    sizes = [abs(part.adds) for part in parts.parts]
    dtypes = {heads.call.values.dtype for heads in finder.heads if heads.call.values is not None}
    rounding = max(torch.finfo(dtype).eps for dtype in dtypes) * sum(sizes)
    if not difference <= max(TOLERANCE * max(abs(parts.logit), *sizes), rounding):  # also of NaN
        raise AttnvizError(
            f"{name} sum to {total:.4f} instead of {parts.logit:.4f}; use attnviz ablate, which needs no such sum"
        )
