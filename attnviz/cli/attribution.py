"""Runs the logit attribution that a command line asks for."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from attnviz.base.errors import AttnvizError, option
from attnviz.base.options import declared_options
from attnviz.cli.subject import Subject
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.text.selection import Grouping, Selection, resolve_span

if TYPE_CHECKING:
    from attnviz.effects.logit_parts import LogitParts
    from attnviz.models.reading.settings import ModelSettings


def logit_parts(subject: Subject, settings: "ModelSettings", selection: Selection, label: str) -> "LogitParts":
    """Returns the parts of a token's logit at the last selected query.

    Raises:
        AttnvizError: for any input but a text, an untrained model, or what `logit_attribution` refuses.
    """
    refusal = f"{option('logits')} runs the model on a text, and a saved file holds no model; give a text"
    example = subject.example(settings, refusal)
    from attnviz.models.sources import open_reader, refuse_untrained

    reader = open_reader(settings, "predictions", selection.tower)
    refuse_untrained(settings.model)
    prepared_input = reader.read(example)
    from attnviz.effects.logit_attribution import logit_attribution

    token = reader.find_token(label, prepared_input.tokens)
    query_span = resolve_span(selection.queries, len(prepared_input.tokens), "queries")
    parts = logit_attribution(reader.module, prepared_input.inputs, token.id, query_span.stop - 1)
    return replace(
        parts,
        label=token.label,
        key_labels=prepared_input.tokens.labels,
        context_labels=() if prepared_input.context is None else prepared_input.context.labels,
        model=reader.name,
        title=prepared_input.title,
        remarks=(*filter(None, [token.remark]), *prepared_input.remarks),
    )


def refuse_map_options(options: ReportOptions, batch: Path | None, option_text: str | None = None) -> None:
    """Raises AttnvizError if a batch or an option of maps is given where no map is drawn; the message names the
    first.
    """
    defaults = ReportOptions()
    values = {name: getattr(options, name) for name in ("of", "table", "reduce", "sort", "top", "filter", "axes")}
    changed_names = [name for name, value in values.items() if value != getattr(defaults, name)]
    changed_names += [
        name for name in declared_options(Grouping) if getattr(options.grouping, name) != getattr(Grouping, name)
    ]
    if options.selection.keys != (None, None):
        changed_names.append("keys")
    look, map_looks = options.look, ("style", "query", "mark", "pool", "names")
    changed_names += [name for name in map_looks if getattr(look, name) != getattr(Look, name)]
    if batch is not None:
        changed_names.append("batch")
    if changed_names:
        other_option = option_text or option("logits", "TOKEN")
        raise AttnvizError(
            f"{option(changed_names[0])} does not apply to {other_option}, which draws no maps; leave it out"
        )
