"""Reads the numbers that stand beside a head's metrics: the effects of its ablation, and the norms that it moves."""

from pathlib import Path
from typing import TYPE_CHECKING

from attnviz.base.errors import AttnvizError, option
from attnviz.metrics.measure import Measure

if TYPE_CHECKING:
    from attnviz.effects.effect_table import Effects

MOVED = Measure("moved", "moved", "norm", "sum of a row's contributions ‖α f(x)‖")


def effect_remark(effects: "Effects") -> str:
    """Returns a remark that names the model and text of the effects, and says that they come from an intervention."""
    texts = f"{effects.texts} texts" if effects.texts > 1 else repr(" ".join(effects.title.split()))
    return f"Effects are from {effects.model} on {texts}, with heads replaced by {effects.by}: an intervention."


def read_effects(file: str, heads: set[str]) -> "Effects":
    """Loads the effects from a file, which must have the effect of at least one of these heads.

    Raises:
        AttnvizError: if the file cannot be read, holds no effects, or has none of these heads.
    """
    effects = load_effects(file)
    refuse_other_heads(effects, file, heads)
    return effects


def load_effects(file: str) -> "Effects":
    """Loads the effects from a file.

    Raises:
        AttnvizError: if the file cannot be read or holds no effects.
    """
    from attnviz.effects.effect_table import Effects

    return Effects.load(Path(file))


def refuse_other_heads(effects: "Effects", file: str, heads: set[str]) -> None:
    """Raises AttnvizError if the table has no effect of any of these heads removed alone."""
    single_heads = [row.name for row in effects.rows if len(row.heads) == 1]
    if heads.isdisjoint(single_heads):
        examples = ", ".join(single_heads[:3]) or "sets of heads"
        raise AttnvizError(
            f"{option('effects', file)} has effects of {examples}, but of none of the heads shown; measure the heads "
            "shown with attnviz ablate"
        )
