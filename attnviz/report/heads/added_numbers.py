"""Numbers of heads beside their metrics: what each moves, and what is lost without it."""

from pathlib import Path
from typing import TYPE_CHECKING

from attnviz.base.errors import AttnvizError, option
from attnviz.metrics.measure import Measure

if TYPE_CHECKING:
    from attnviz.effects.effect_table import Effects

MOVED = Measure("moved", "moved", "norm", "sum of a row's contributions ‖α f(x)‖")


def effect_remark(effects: "Effects") -> str:
    """Of which model and text the effects are, and that they are those of an intervention."""
    over = f"{effects.texts} texts" if effects.texts > 1 else repr(" ".join(effects.title.split()))
    return f"Effects are those of {effects.model} on {over}, with heads replaced by {effects.by}: an intervention."


def read_effects(file: str, heads: set[tuple[int, int]]) -> "Effects":
    """The effects of a file, some of which are those of these layers and heads.

    Raises:
        AttnvizError: for a file that cannot be read, holds no effects, or those of none of these heads.
    """
    effects = load_effects(file)
    refuse_others(effects, file, heads)
    return effects


def load_effects(file: str) -> "Effects":
    """The effects of a file.

    Raises:
        AttnvizError: for a file that cannot be read, or holds no effects.
    """
    from attnviz.effects.effect_table import Effects

    return Effects.load(Path(file))


def refuse_others(effects: "Effects", file: str, heads: set[tuple[int, int]]) -> None:
    """Raises AttnvizError for effects of none of these heads."""
    single = effects.frame.single
    if not heads & single.keys():
        named = ", ".join(f"{layer}.{head}" for layer, head in list(single)[:3]) or "no single head"
        raise AttnvizError(f"{option('effects', file)} is of {named}, and of none of these heads; theirs work")
