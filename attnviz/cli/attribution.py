"""Runs the logit attribution that a command line asks for."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from attnviz.base.errors import AttnvizError, option
from attnviz.cli.subject import Subject
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.text.selection import Grouping, Selection, resolve_span

if TYPE_CHECKING:
    from attnviz.effects.logit_parts import LogitParts
    from attnviz.models.reading.settings import ModelSettings


def attributed(given: Subject, settings: "ModelSettings", selection: Selection, wanted: str) -> "LogitParts":
    """Returns the parts of a token's logit after the last of the selected queries.

    Args:
        given: the text.
        settings: of the model.
        selection: the queries.
        wanted: the token as the user writes it.

    Raises:
        AttnvizError: for a saved recording, or for what `logit_attribution` refuses.
    """
    refusal = f"{option('logits')} runs the model on a text, and a recording holds no model; give a text"
    text = given.text_for(refusal)
    from attnviz.models.reading.example import Example
    from attnviz.models.sources import open_reader, refuse_unlearned

    reader = open_reader(settings, "predictions")
    refuse_unlearned(settings.model)
    read = reader.read(Example.of(text, settings))
    from attnviz.effects.logit_attribution import logit_attribution

    token = reader.find_token(wanted, read.tokens)
    at = resolve_span(selection.queries, len(read.tokens), "queries").stop - 1
    found = logit_attribution(reader.module, read.inputs, token, at)
    return replace(
        found,
        label=wanted,
        key_labels=read.tokens.labels,
        context_labels=() if read.context is None else read.context.labels,
        model=reader.name,
        title=read.title,
        remarks=read.remarks,
    )


def refuse_beside_logits(options: ReportOptions, batch: Path | None) -> None:
    """Raises AttnvizError for options that select or combine maps, since logit attribution draws none."""
    usual = ReportOptions()
    asked = {name: getattr(options, name) for name in ("of", "table", "reduce", "sort", "top", "filter", "axes")}
    given = [name for name, value in asked.items() if value != getattr(usual, name)]
    if options.grouping != Grouping():
        given.append("words")
    if options.selection.keys != (None, None):
        given.append("keys")
    given += [name for name in ("style", "query", "mark", "pool") if getattr(options.look, name) != getattr(Look, name)]
    if batch is not None:
        given.append("batch")
    if given:
        raise AttnvizError(
            f"{option(given[0])} does not apply to {option('logits', 'TOKEN')}, which draws no maps; leave it out"
        )
