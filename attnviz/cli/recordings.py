"""Records what a command line asks for: one text, a batch, or two recordings to compare."""

from dataclasses import replace
from typing import TYPE_CHECKING

from attnviz.base.errors import AttnvizError, flag, or_list, setting_name
from attnviz.cli.subject import Kind, Subject
from attnviz.text.selection import Selection

if TYPE_CHECKING:
    from attnviz.maps.recording import Recording
    from attnviz.models.reading.computation import Computation
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
    """Returns a new recording of a text, an image or a sound, or the saved recording that the subject names.

    Raises:
        AttnvizError: if the file is no recording, or the model does not exist or does not read such an input.
    """
    if not subject.is_run:
        return subject.recording(whole)
    from attnviz.models.sources import open_reader

    reader = open_reader(settings, subject.use, selection.tower)
    reader.keeps_factors = factors
    return reader.record(subject.example_of_any_medium(settings), selection, values)


def record_batch(
    texts: list[str], settings: "ModelSettings", selection: Selection, values: bool = False
) -> "Recording":
    """Returns one recording of several texts, run as a batch.

    Raises:
        AttnvizError: if the model reads one text at a time, or a text has no tokens.
    """
    from attnviz.models.reading.example import Example
    from attnviz.models.sources import open_reader

    reader = open_reader(settings, tower=selection.tower)
    return reader.record_batch([Example.of(text, settings) for text in texts], selection, values)


def compute(subject: Subject, settings: "ModelSettings", layer: int) -> "Computation":
    """Returns every intermediate result of one layer of a model over a text, an image, or a text with images.

    Raises:
        AttnvizError: for a saved file or a sound, or if the layer does not exist.
    """
    refusal = "explain computes from a text, and a saved file holds no model; give a text"
    is_image = subject.kind is Kind.IMAGE
    example = subject.example_of_any_medium(settings) if is_image else subject.example(settings, refusal)
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
    With any other model, only the text differs. If an input is not a text, both are recorded by `_record_each`.

    Raises:
        AttnvizError: if there is nothing to compare: no second text, and no changed setting of the seeded model.
    """
    if not (text.is_text and (other is None or other.is_text)):
        return _record_each(text, other, settings, selection, whole, values)
    from attnviz.base.machine import refuse_little_memory
    from attnviz.models.reading.settings import ModelSettings
    from attnviz.models.sources import open_reader, refuse_unused

    examples = [subject.example_of_any_medium(settings) for subject in (text, other or text)]

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
    """Returns the recordings of two models, over one input or two, and the change in words.

    Raises:
        AttnvizError: if an input is a saved file, or a model cannot record its input.
    """
    if not (text.is_run and (other is None or other.is_run)):
        raise AttnvizError(
            "--with-model runs models, and a saved file holds none; give a text, or leave out --with-model"
        )
    recording_a = record(text, settings, selection, values=values)
    recording_b = record(text if other is None else other, replace(settings, model=model), selection, values=values)
    change = f"the change to {recording_b.model}"
    if other is not None:
        change += " and another text"
    return recording_a, recording_b, change


def _record_each(
    text: Subject,
    other: Subject | None,
    settings: "ModelSettings",
    selection: Selection,
    whole: bool,
    values: bool = False,
) -> tuple["Recording", "Recording", str]:
    """Returns the recordings of two inputs, each new or saved, and the change in words.

    Raises:
        AttnvizError: if there is no second input, or an input cannot be recorded or read.
    """
    if other is None:
        raise AttnvizError(f"nothing to compare {text.source} with; give an input of the same kind after --with")
    recording_a, recording_b = (record(subject, settings, selection, whole, values) for subject in (text, other))
    return recording_a, recording_b, f"the change to {other.source}"
