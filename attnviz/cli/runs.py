"""Runs the models that a command line names: recordings of one text or two, ablations, logits, and checks of units."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from attnviz.base.errors import AttnvizError, flag, option, or_list, setting_name
from attnviz.cli.input import is_piped, read_texts
from attnviz.cli.options import Input
from attnviz.cli.subject import Kind, Subject
from attnviz.report.picture.options import CHECK, ReportOptions, refuse_changed, refuse_tables_of_surveys
from attnviz.text.selection import Selection, resolve_span

if TYPE_CHECKING:
    from attnviz.effects.effect_table import Effects
    from attnviz.effects.logit_parts import LogitParts
    from attnviz.maps.recording import Recording
    from attnviz.metrics.unit_shares import UnitChecks
    from attnviz.models.reading.computation import Computation
    from attnviz.models.reading.example import Example
    from attnviz.models.reading.settings import ModelSettings

# Of the seeded model, each with a value to try.
COMPARABLE_SETTINGS: dict[str, str | float] = {
    "causal": True,
    "scale": "none",
    "temperature": 2,
    "seed": 3,
    "dropout": 0.5,
}


def record(
    subject: Subject,
    settings: "ModelSettings",
    selection: Selection,
    whole: bool = False,
    values: bool = False,
    factors: bool = False,
) -> "Recording":
    """Returns a new recording of a text, an image or a sound, or the saved recording that the subject names."""
    if not subject.is_run:
        return subject.recording(whole)
    from attnviz.models.sources import open_reader

    reader = open_reader(settings, subject.use, selection.tower)
    reader.keeps_factors = factors
    return reader.record(subject.example(settings), selection, values)


def refuse_undrawable(subject: Subject | None, settings: "ModelSettings", options: ReportOptions) -> None:
    """Raises AttnvizError for options with which no recording can be drawn; without a subject, that of a batch."""
    refuse_tables_of_surveys(options)
    if subject is None and options.reduce is not None:
        raise AttnvizError(f"{option('reduce')} takes one text, and --batch gives several; record them one by one")
    if options.sort is not None or options.filter is not None:
        from attnviz.metrics.measured_heads import refuse_unknown_measures

        refuse_unknown_measures(options.sort, options.filter)
    query = options.look.query
    if query is None or settings.model not in ("seeded", "trained"):
        return  # another model splits the text itself
    if subject is None or subject.kind is not Kind.TEXT or subject.passages is not None:
        return
    if settings.model == "seeded" or not query.lstrip("@").isdigit():  # the trained model counts a start token
        from attnviz.text.places import find_place
        from attnviz.text.tokens import tokenize

        find_place(tokenize(subject.source, settings.tokenizer), query)


def record_batch(
    texts: list[str], settings: "ModelSettings", selection: Selection, values: bool = False
) -> "Recording":
    """Returns one recording of several texts, run as a batch."""
    from attnviz.models.reading.example import Example
    from attnviz.models.sources import open_reader

    reader = open_reader(settings, tower=selection.tower)
    return reader.record_batch([Example.of(text, settings) for text in texts], selection, values)


def compute(subject: Subject, settings: "ModelSettings", layer: int) -> "Computation":
    """Returns every intermediate result of one layer of a model over a text, an image, or a text with images."""
    refusal = "explain computes from a text, and a saved file holds no model; give a text"
    example = subject.example(settings, refusal, media=(Kind.IMAGE,))
    from attnviz.models.sources import open_reader

    return open_reader(settings, subject.use).compute(example, layer)


def record_both(
    text: Subject,
    other: Subject | None,
    settings: "ModelSettings",
    selection: Selection,
    whole: bool = False,
    values: bool = False,
) -> tuple["Recording", "Recording", str]:
    """Returns recordings A and B, and the change from A to B in words.

    With the seeded model, A has the default settings and B the changed ones, with A's weights unless the seed changes.
    With any other model, only the text differs. If an input is not a text, each is a new or a saved recording.
    """
    if not (text.is_text and (other is None or other.is_text)):
        if other is None:
            raise AttnvizError(f"nothing to compare {text.source} with; give an input of the same kind after --with")
        recording_a, recording_b = (record(subject, settings, selection, whole, values) for subject in (text, other))
        return recording_a, recording_b, f"the change to {other.source}"
    from attnviz.base.machine import refuse_little_memory
    from attnviz.models.reading.settings import ModelSettings
    from attnviz.models.sources import open_reader, refuse_unused

    examples = [subject.example(settings) for subject in (text, other or text)]

    if settings.model != ModelSettings.model:
        if other is None:
            refuse_unchanged(settings)
        reader = open_reader(settings, text.use, selection.tower)
        return (
            reader.record(examples[0], selection, values),
            reader.record(examples[1], selection, values),
            "another text",
        )
    refuse_little_memory()
    from attnviz.models.seeded import SeededReader

    changed_names = _changed_settings(settings)
    if other is None:
        refuse_unchanged(settings)
    refuse_unused(settings)
    reader_a = SeededReader(replace(settings, **{name: getattr(ModelSettings, name) for name in changed_names}))
    reader_b = SeededReader(settings, weights_from=None if "seed" in changed_names else reader_a)
    recording_a = reader_a.record(examples[0], selection, values)
    recording_b = reader_b.record(examples[1], selection, values)
    changes = [
        flag(name) if name == "causal" else f"{setting_name(name)}={getattr(settings, name)}" for name in changed_names
    ]
    if other is not None:
        changes.append("another text")
    return recording_a, recording_b, " ".join(changes)


def refuse_unchanged(settings: "ModelSettings") -> None:
    """Raises AttnvizError unless the model is the seeded one with a changed setting."""
    from attnviz.models.reading.settings import ModelSettings

    if settings.model == ModelSettings.model and _changed_settings(settings):
        return
    flags = [
        flag(name, example) for name, example in COMPARABLE_SETTINGS.items() if settings.model == ModelSettings.model
    ]
    raise AttnvizError(f"nothing to compare; add {or_list([*flags, '--with TEXT', '--with-model MODEL'])}")


def _changed_settings(settings: "ModelSettings") -> list[str]:
    """Returns the names of the comparable settings that differ from the defaults."""
    from attnviz.models.reading.settings import ModelSettings

    return [name for name in COMPARABLE_SETTINGS if getattr(settings, name) != getattr(ModelSettings, name)]


def record_models(
    text: Subject,
    other: Subject | None,
    settings: "ModelSettings",
    model: str,
    selection: Selection,
    values: bool = False,
) -> tuple["Recording", "Recording", str]:
    """Returns the recordings of two models, over one input or two, and the change in words."""
    if not (text.is_run and (other is None or other.is_run)):
        raise AttnvizError(
            "--with-model runs models, and a saved file holds none; give a text, or leave out --with-model"
        )
    from attnviz.models.huggingface.adapter import on_base
    from attnviz.models.sources import PRETRAINED, row_of

    recording_a = record(text, settings, selection, values=values)
    other_model = on_base(model, settings.model) if row_of(settings.model) is PRETRAINED else model
    other_settings = replace(settings, model=other_model)
    recording_b = record(text if other is None else other, other_settings, selection, values=values)
    change = f"the change to {recording_b.model}"
    if other is not None:
        change += " and another text"
    return recording_a, recording_b, change


def logit_parts(subject: Subject, settings: "ModelSettings", selection: Selection, label: str) -> "LogitParts":
    """Returns the parts of a token's logit at the last selected query."""
    refusal = f"{option('logits')} runs the model on a text, and a saved file holds no model; give a text"
    example = subject.example(settings, refusal, media=())
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


def checked_units(
    count: int, subject: Subject, settings: "ModelSettings", options: ReportOptions
) -> "tuple[Recording, UnitChecks]":
    """Returns the recording of a text, and what its answer loses without each of ``count`` units."""
    from attnviz.models.sources import open_reader, refuse_untrained

    refuse_changed(CHECK, options)
    from attnviz.api.unit_checks import refuse_single_tokens, unit_checks

    refuse_single_tokens(options.grouping)
    refusal = f"{option('check')} runs the model, and a saved file holds none; give a text"
    example = subject.example(settings, refusal, media=())
    refuse_untrained(settings.model)
    reader = open_reader(settings, "predictions", options.selection.tower)
    return unit_checks(reader, example, options.selection, options.grouping, count)


def ablation_effects(
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
    """Returns how a metric changes in each text without a head, or without a set of heads."""
    from attnviz.models.sources import open_reader, refuse_untrained

    examples = _examples(input, settings, batch)
    refuse_untrained(settings.model)
    from attnviz.api.ablation import effects_of_examples, use_for_effects

    use = use_for_effects([example for example in examples if example is not None], metric)
    reader = open_reader(settings, use, selection.tower)
    prepared_inputs = [reader.built_in_example() if example is None else reader.read(example) for example in examples]
    chooses_queries = selection.queries != (None, None)
    tokens = len(prepared_inputs[0].tokens)
    from attnviz.effects.ablation import Ablation

    ablation = Ablation(
        reader.module,
        metric,
        heads=None if selection == Selection(queries=selection.queries) else selection,
        sets=None if sets is None else sets.split(","),
        pairs=pairs,
        top=top,
        by=by,
        positions=resolve_span(selection.queries, tokens, "queries") if chooses_queries else slice(None),
    )
    return effects_of_examples(reader, prepared_inputs, ablation)


def _examples(input: Input, settings: "ModelSettings", batch: Path | None) -> "list[Example | None]":
    """Returns the examples that the user gives, or the sample text; `[None]` for the model's own example."""
    from attnviz.models.sources import row_of

    names_no_input = input == Input() and batch is None
    if names_no_input and row_of(settings.model).has_example and not is_piped():
        return [None]
    refusal = "ablate runs the model on a text, and a saved file holds no model; give a text"
    subjects = read_texts(input, settings, batch)
    return [subject.example(settings, refusal, media=(Kind.IMAGE,)) for subject in subjects]
