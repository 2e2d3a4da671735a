"""Runs the ablation that a command line asks for."""

from pathlib import Path
from typing import TYPE_CHECKING

from attnviz.cli.input import is_piped, read_texts
from attnviz.cli.options import Input
from attnviz.cli.subject import Kind, Subject
from attnviz.text.selection import Selection, resolve_span

if TYPE_CHECKING:
    from attnviz.effects.effect_table import Effects
    from attnviz.models.reading.example import Example
    from attnviz.models.reading.settings import ModelSettings


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
    """Returns how a metric changes in each text without a head, or without a set of heads.

    Raises:
        AttnvizError: for a saved file, a sound or an untrained model, or for what `ablate` refuses.
    """
    from attnviz.models.sources import open_reader, refuse_untrained

    examples = _examples(input, settings, batch)
    from attnviz.api.ablation import effects_of_examples, use_for_effects

    use = use_for_effects([example for example in examples if example is not None], metric)
    reader = open_reader(settings, use, selection.tower)
    refuse_untrained(settings.model)
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
    from attnviz.models.sources import reader_class

    names_no_input = input == Input() and batch is None
    if names_no_input and reader_class(settings.model).has_example and not is_piped():
        return [None]
    refusal = "ablate runs the model on a text, and a saved file holds no model; give a text"
    return [_example(subject, settings, refusal) for subject in read_texts(input, settings, batch)]


def _example(subject: Subject, settings: "ModelSettings", refusal: str) -> "Example":
    """Returns the example of an image, or of an input that `Subject.example` reads; ``refusal`` is for saved files."""
    if subject.kind is not Kind.IMAGE:
        return subject.example(settings, refusal)
    from attnviz.models.reading.example import Example

    return Example(image=Path(subject.source))
