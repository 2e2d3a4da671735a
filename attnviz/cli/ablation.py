"""The heads of a model removed as a command line says."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.base.errors import AttnvizError
from attnviz.cli.input import is_piped, read_texts
from attnviz.cli.options import Input
from attnviz.text.selection import Selection, resolve_span

if TYPE_CHECKING:
    from attnviz.effects.effect_table import Effects
    from attnviz.models.runnable import Runnable
    from attnviz.models.settings import ModelSettings

LOGIT = "logit:"


def removed_heads(
    input: Input,
    settings: "ModelSettings",
    selection: Selection,
    batch: Path | None,
    *,
    metric: str | None,
    by: str,
    pairs: bool,
    sets: str | None,
    top: int | None,
) -> "Effects":
    """What the output of the model loses over the texts.

    Raises:
        AttnvizError: for a saved recording, or what ``ablate`` refuses.
    """
    from attnviz.models.sources import open_source

    source = open_source(settings)
    texts = _texts(input, settings, batch)
    runnables = [source.runnable(text) for text in texts]
    first = runnables[0]
    from attnviz.effects.ablation import ablate

    said = metric
    if metric is not None and metric.startswith(LOGIT):
        metric = f"{LOGIT}{first.find_token(metric.removeprefix(LOGIT))}"
    effects = ablate(
        first.model,
        [each.inputs for each in runnables],
        metric,
        heads=None if selection == Selection(queries=selection.queries) else selection,
        sets=None if sets is None else sets.split(","),
        pairs=pairs,
        top=top,
        by=by if by in ("zero", "mean") else source.runnable(by).inputs,
        attention=first.attention,
        positions=_positions(first, selection),
    )
    title = first.title if len(runnables) == 1 else f"{len(runnables)} texts"
    return replace(effects, metric=said or effects.metric, model=first.name, title=title, remarks=first.remarks)


def _texts(input: Input, settings: "ModelSettings", batch: Path | None) -> list[str | None]:
    """The texts that are given; without any, the model's own example where it has one."""
    none_given = input.text is None and not input.file and input.sample is None and batch is None
    if none_given and settings.model == "trained" and not is_piped():
        return [None]
    texts: list[str | None] = []
    for each in read_texts(input, settings.tokenizer, batch):
        if isinstance(each, Path):
            raise AttnvizError("ablate runs the model on a text, and a recording holds no model; give a text")
        texts.append(each)
    return texts


def _positions(first: "Runnable", selection: Selection) -> slice:
    """The tokens at which the output is measured."""
    if selection.queries == (None, None):
        return first.positions
    return resolve_span(selection.queries, _count(first.inputs), "queries")


def _count(inputs: Any) -> int:
    """How many tokens a model reads."""
    ids = inputs.get("decoder_input_ids", inputs.get("input_ids")) if isinstance(inputs, dict) else inputs
    return 0 if ids is None else int(ids.shape[1])
