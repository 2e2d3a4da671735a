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
    """Returns the effects of removing each head: the change of the output, as a mean over all texts.

    Args:
        input: the text or image, if there is no batch; if the user names none, the model's built-in example is read,
            or the sample text for a model without one.
        settings: the settings of the model.
        selection: the heads to remove, and the queries at which the output is measured.
        batch: a file with one text per line.
        metric: the number to measure, such as ``loss`` or ``logit:TOKEN``; ``None`` chooses the metric of the
            examples if they share one, else loss or cosine.
        by: ``zero``, ``mean``, or a text whose outputs replace those of the heads.
        pairs: True to remove pairs of heads too.
        sets: sets of heads, such as ``1.0+1.1,0``.
        top: the number of heads to remove one after another, each time the one that matters most.

    Raises:
        AttnvizError: for a saved recording, or for what `ablate` refuses.
    """
    from attnviz.models.sources import open_reader, refuse_untrained

    texts = _texts(input, settings, batch)
    from attnviz.api.ablation import effects_of_examples, use_for_effects

    use = use_for_effects([text for text in texts if text is not None], metric)
    reader = open_reader(settings, use, selection.tower)
    refuse_untrained(settings.model)
    prepared = [reader.built_in_example() if text is None else reader.read(text) for text in texts]
    chooses_queries = selection.queries != (None, None)
    tokens = len(prepared[0].tokens)
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
    return effects_of_examples(reader, prepared, ablation)


def _texts(input: Input, settings: "ModelSettings", batch: Path | None) -> "list[Example | None]":
    """Returns the texts that the user names, or ``[None]`` for the built-in example, or the sample text.

    The sample text is for models without a built-in example.

    Args:
        input: the options that name a text, files or images.
        settings: the settings of the model.
        batch: a file with one text per line; ``None`` if there is none.

    Raises:
        AttnvizError: for a saved recording, or texts that cannot be read.
    """
    from attnviz.models.sources import reader_class

    sources = (input.text, input.file, input.sample, input.image, batch)
    names_no_input = all(source is None or source == [] for source in sources)
    if names_no_input and reader_class(settings.model).has_example and not is_piped():
        return [None]
    refusal = "ablate runs the model on a text, and a recording holds no model; give a text"
    return [_example(subject, settings, refusal) for subject in read_texts(input, settings, batch)]


def _example(subject: Subject, settings: "ModelSettings", refusal: str) -> "Example":
    """Returns the example of an image, or of a text.

    Args:
        subject: what the user gave.
        settings: the settings of the model.
        refusal: the message for a saved recording.

    Raises:
        AttnvizError: if it is a saved recording.
    """
    if subject.kind is not Kind.IMAGE:
        return subject.example(settings, refusal)
    from attnviz.models.reading.example import Example

    return Example(image=Path(subject.source))
