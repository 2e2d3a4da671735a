"""Reads the input that a command line names, and runs the model on it: a recording, two, ablations, logits, checks."""

import os
import stat
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.base.errors import AttnvizError, flag, option, or_list, setting_name
from attnviz.base.printable import remark
from attnviz.base.signals import cleanup_on_signals
from attnviz.cli.options import Input, Removal
from attnviz.cli.subject import ANSWER_COLUMNS, CORRUPT_COLUMN, GROUP_COLUMN, BatchPrompt, Kind, Subject, read_prompts
from attnviz.models.reading.example import Example
from attnviz.models.reading.settings import ModelSettings
from attnviz.models.sources import PRETRAINED, open_reader, refuse_untrained, refuse_unused, row_of, used_settings
from attnviz.report.picture.options import ReportOptions, refuse_tables_of_surveys
from attnviz.text.selection import Grouping, Selection, resolve_span

if TYPE_CHECKING:
    from attnviz.corpus.survey import Survey
    from attnviz.effects.behaviour import Behaviour
    from attnviz.effects.effect_table import Effects
    from attnviz.effects.unit_effects import UnitEffects
    from attnviz.effects.why import Why
    from attnviz.maps.recording import Recording
    from attnviz.media.timed_words import TimedWord
    from attnviz.metrics.contacts import KnownPairs
    from attnviz.models.reading.computation import Computation
    from attnviz.models.reading.reader import Reader

QUOTED_LENGTH = 40  # characters of an input that a message quotes at most
INPUT_NAMES = {
    "text": "TEXT",
    "file": "--file",
    "sample": "a sample",
    "image": "a picture",
    "sound": "a sound",
}  # by the name of its option
# Of the seeded model, each with a value to try.
COMPARABLE_SETTINGS: dict[str, str | float] = {
    "causal": True,
    "scale": "none",
    "temperature": 2,
    "seed": 3,
    "dropout": 0.5,
}


def add_own_metrics(addresses: Sequence[str] | None, subject: Subject | None = None) -> None:
    """Adds the metrics that functions of the user's files define, each named as ``mine.py:kurtosis``."""
    if not addresses:
        return
    if subject is not None and subject.kind is Kind.SURVEY:
        raise AttnvizError(
            f"{option('metric', addresses[0])} is measured while texts are read, and a survey holds what was measured "
            "then; give it to attnviz survey"
        )
    from attnviz.base.own_file import own_function
    from attnviz.metrics.own_metric import add_metric, metric_of

    functions = [own_function("metric", address) for address in dict.fromkeys(addresses)]
    names = [metric_of(function).name for function in functions]
    for name, function in zip(names, functions, strict=True):
        if names.count(name) > 1:
            raise AttnvizError(f"two metrics are named {name!r}; give one of the functions another name")
        add_metric(function)


def read_input(input: Input, settings: ModelSettings, grouping: Grouping | None = None) -> Subject:
    """Returns the input of a command, with the token labels of arrays and the passages before a text."""
    subject = _read_subject(input, settings)
    quoted_source = repr(subject.source[:QUOTED_LENGTH])
    if input.labels is not None and subject.kind is not Kind.ARRAYS:
        raise AttnvizError(f"labels name the tokens of arrays, and {quoted_source} has its own tokens; leave them out")
    if input.passages is not None and subject.kind is not Kind.TEXT:
        raise AttnvizError(f"--passages come before a text, and {quoted_source} is no plain text; leave them out")
    subject = replace(subject, tokens=input.labels, passages=input.passages)
    is_chat = settings.chat or subject.kind is Kind.CHAT
    is_plain_text = subject.kind is Kind.TEXT and not subject.images and subject.sound is None
    if grouping is not None and is_plain_text and not is_chat and subject.passages is None:
        from attnviz.text.named_groups import refuse_absent_units

        refuse_absent_units(grouping.by)
    if is_chat and Path(settings.model).expanduser().exists():
        from attnviz.models.huggingface.folder import refuse_without_chat_template

        refuse_without_chat_template(settings.model)
    return subject


def _read_subject(input: Input, settings: ModelSettings) -> Subject:
    """Returns the input that an option or standard input gives, or else a sample text."""
    from attnviz.text.samples import read_sample, samples

    input_names = [option_name for name, option_name in INPUT_NAMES.items() if getattr(input, name) is not None]
    text_names = [name for name in input_names if name not in (INPUT_NAMES["image"], INPUT_NAMES["sound"])]
    if len(text_names) > 1:
        raise AttnvizError(f"{' and '.join(text_names[:2])} both give the input; use one of them")
    if input.image or input.sound is not None:
        without_media = replace(input, image=None, sound=None)
        text = _read_subject(without_media, settings) if text_names else None
        return _subject_with_media(text, tuple(input.image or ()), input.sound)
    if input.file:
        return _file_subject(input.file, settings.tokenizer)
    if input.sample is not None:
        return Subject(read_sample(input.sample))
    if input.text not in (None, "-"):
        subject = Subject.of(_refuse_blank(str(input.text), settings.tokenizer))
        if subject.is_text_file:
            remark(f"reading the file {subject.source!r}")
            subject = _file_subject([Path(subject.source)], settings.tokenizer)
        else:
            subject = subject.drawable()
        return subject
    if input.text == "-" or is_piped():
        from attnviz.base.reading import read_stream

        if sys.stdin is None:
            raise AttnvizError("standard input is closed; give a text or --file FILE")
        piped_text = read_stream(sys.stdin.buffer, "standard input").removesuffix("\n")
        return Subject(_refuse_blank(piped_text, settings.tokenizer))

    # No input: the sample text of the model, or else the first of attnviz.

    sample_text = row_of(settings.model).sample_text
    if sample_text:
        remark(f"no text given: using “{sample_text}”")
    else:
        sample_name = next(iter(samples()))
        sample_text = read_sample(sample_name)
        remark(f"no text given: using sample {sample_name!r}, “{sample_text}”")
    return Subject(sample_text)


def _subject_with_media(subject: Subject | None, images: tuple[Path, ...], sound: Path | None) -> Subject:
    """Returns a text together with its images or its sound; without a text, the only image or the sound."""
    if sound is not None and images:
        raise AttnvizError("a picture and a sound are for different models; use one of them")
    if subject is None and len(images) > 1:
        raise AttnvizError(f"{len(images)} images without a text; give a text, or one image")
    if subject is None:
        return Subject(str(images[0]), Kind.IMAGE) if sound is None else Subject(str(sound), Kind.SOUND)
    if subject.kind is not Kind.TEXT and not (images and subject.kind is Kind.CHAT):
        no_text = f"{subject.source[:QUOTED_LENGTH]!r} is no plain text"
        if sound is None:
            raise AttnvizError(f"a picture goes with a text or a chat, and {no_text}; use one of them")
        raise AttnvizError(f"a sound takes the words that are said, and {no_text}; give the words, or only the sound")
    return replace(subject, images=images, sound=sound)


def _file_subject(files: list[Path], tokenizer: str) -> Subject:
    """Returns the text of the only file, or the chat or server's answer that it holds."""
    from attnviz.base.reading import read_text

    if len(files) > 1:
        raise AttnvizError(
            "only attnviz heads and attnviz ablate take several --file, and only without other input; give one"
        )
    subject = Subject.of(str(files[0]))
    if subject.kind in (Kind.CHAT, Kind.ANSWER):
        return subject
    return Subject(_refuse_blank(read_text(files[0]), tokenizer))


def read_texts(
    input: Input, settings: ModelSettings, batch: Path | None, grouping: Grouping | None = None
) -> list[Subject]:
    """Returns the inputs of a command: the lines of a batch, the texts of several files, or a single input."""
    from attnviz.base.reading import read_text

    files = input.file or []
    if input.passages is not None and len(files) > 1:
        raise AttnvizError("--passages stand before one text; give one --file")
    if batch is not None:
        return [Subject(prompt.text) for prompt in read_batch(batch, input)]
    if len(files) > 1 and input == Input(file=files):
        return [Subject(_refuse_blank(read_text(path), settings.tokenizer)) for path in files]
    return [read_input(input, settings, grouping)]


def read_surveys(first: Subject, second: Subject) -> "tuple[Survey, Survey] | None":
    """Returns the surveys that two inputs hold; ``None`` if neither is a survey."""
    if first.survey is not None and second.survey is not None:
        return first.survey, second.survey
    if first.survey is not None or second.survey is not None:
        raise AttnvizError(
            "only one of the two is a survey; attnviz compare takes two surveys, or two recordings or texts"
        )
    return None


def read_effects_pair(first: str | None, second: str | None) -> "tuple[Effects, Effects] | None":
    """Returns the tables of effects that two inputs hold; ``None`` if neither holds effects."""
    subjects = [Subject.of(words) for words in (first, second) if words is not None]
    effect_files = [subject for subject in subjects if subject.kind is Kind.EFFECTS]
    if not effect_files:
        return None
    if len(effect_files) == 1:
        raise AttnvizError(
            f"{effect_files[0].source!r} holds effects of heads; attnviz compare takes two such files, or two "
            "recordings or texts"
        )
    first_table, second_table = (subject.effects for subject in effect_files)
    assert first_table is not None
    assert second_table is not None
    return first_table, second_table


def read_batch(path: Path, input: Input, columns: Sequence[str] = ()) -> list[BatchPrompt]:
    """Returns the texts of a file, with what its columns say of each; no other input may be given."""
    input_names = [option_name for name, option_name in INPUT_NAMES.items() if getattr(input, name) is not None]
    if input_names:
        raise AttnvizError(f"{input_names[0]} and --batch both give the input; use one of them")
    if input.passages is not None:
        raise AttnvizError("--passages stand before one text, and --batch gives several; leave one out")
    if input.labels is not None:
        raise AttnvizError("labels name the tokens of arrays, and --batch gives texts; leave one out")
    return read_prompts(path, columns)


def read_reference(path: Path) -> "KnownPairs | tuple[TimedWord, ...]":
    """Returns what heads are compared with: the known pairs of tokens, or the words with their seconds, of a file."""
    from attnviz.media.timed_words import read_words
    from attnviz.metrics.contacts import PAIRS_SUFFIX, read_pairs

    return read_pairs(path) if path.suffix == PAIRS_SUFFIX else read_words(path)


def read_comparison(other: str | None, second: str | None) -> Subject | None:
    """Returns the input to compare with; ``None`` if there is none."""
    if other is not None and second is not None:
        raise AttnvizError("SECOND and --with both give what to compare with; use one of them")
    if second is None:
        return None if other is None else Subject.of(other).drawable(is_comparison=True)
    subject = Subject.of(second).drawable(is_comparison=True)
    if subject.is_text:
        raise AttnvizError(f"{second[:QUOTED_LENGTH]!r} is a text and no recording; give it after --with")
    return subject


def _refuse_blank(text: str, tokenizer: str) -> str:
    """Returns the text unchanged if it has a token."""
    if not text or (tokenizer == "word" and not text.strip()):
        raise AttnvizError(f"no tokens in {'white space' if text else 'an empty text'}; give a text with a word in it")
    return text


def is_piped() -> bool:
    """True if standard input is a pipe, or a file that is not empty; False for a terminal, or if it is closed."""
    try:
        status = os.fstat(sys.stdin.fileno())
    except (OSError, ValueError, AttributeError):
        return False
    is_filled_file = stat.S_ISREG(status.st_mode) and status.st_size > 0
    return stat.S_ISFIFO(status.st_mode) or is_filled_file


def record(
    subject: Subject,
    settings: ModelSettings,
    selection: Selection,
    whole: bool = False,
    values: bool = False,
    factors: bool = False,
) -> "Recording":
    """Returns a new recording of a text, an image or a sound, or the saved recording that the subject names."""
    if not subject.is_run:
        return subject.recording(whole)

    example = subject.example(settings)
    reader = open_reader(settings, example.use, selection.tower)
    reader.keeps_factors = factors
    return reader.record(example, selection, values)


def refuse_undrawable(subject: Subject | None, settings: ModelSettings, options: ReportOptions) -> None:
    """Raises AttnvizError for options with which no recording can be drawn; without a subject, that of a batch."""
    refuse_tables_of_surveys(options)
    if subject is None and options.reduce is not None:
        raise AttnvizError(f"{option('reduce')} takes one text, and --batch gives several; record them one by one")
    if options.sort is not None or options.filter is not None:
        from attnviz.metrics.call_metrics import refuse_unknown_measures

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
    prompts: list[BatchPrompt], settings: ModelSettings, selection: Selection, values: bool = False
) -> "Recording":
    """Returns one recording of several texts, run as a batch."""
    reader = open_reader(settings, tower=selection.tower)
    return reader.record_batch([Example.of(prompt.text, settings) for prompt in prompts], selection, values)


def compute(subject: Subject, settings: ModelSettings, layer: int) -> "Computation":
    """Returns every intermediate result of one layer of a model over a text, an image, or a text with images.

    The model of a recording runs again, and must give the recorded weights.
    """
    if subject.kind is Kind.RECORDING:
        recording = subject.recording()
        settings, example = _read_again(recording, subject.source, settings)
        return _as_recorded(open_reader(settings, example.use).compute(example, layer), recording, subject.source)
    refusal = "explain runs a model, and this file holds none; give the text and --model"
    example = subject.example(settings, refusal, media=(Kind.IMAGE,))

    return open_reader(settings, example.use).compute(example, layer)


def _as_recorded(computation: "Computation", recording: "Recording", path: str) -> "Computation":
    """Returns a computation with the tokens of a recording, which may know the text behind the ids.

    Raises AttnvizError if the recording holds other weights, or no cells of the layer: its tokens are not all that was
    read, such as the parts of a pair.
    """
    import numpy as np

    from attnviz.maps.layer_maps import known_cells

    kind, layer = "cross" if computation.cross else "self", computation.layer
    for maps in filter(None, map(known_cells, recording.maps)):
        shape = (len(maps.query_tokens), len(maps.key_tokens))
        is_layer = (maps.kind, maps.layer, *shape) == (kind, layer, *computation.weights.shape[1:])
        if is_layer and maps.heads[0] < len(computation.weights):
            recorded = maps.window(maps.heads[:1], slice(0, None), slice(0, None)).weights[0]
            # half precision and other kernels change less
            if np.allclose(recorded, computation.weights[maps.heads[0]], rtol=1e-2, atol=1e-4):
                return replace(computation, tokens=maps.query_tokens, key_tokens=maps.key_tokens)
    raise AttnvizError(
        f"{path!r} does not hold the weights of layer {layer} that its model computes from its tokens alone; "
        "give what was read and --model"
    )


def record_both(
    text: Subject,
    other: Subject | None,
    settings: ModelSettings,
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

    examples = [subject.example(settings) for subject in (text, other or text)]

    if settings.model != ModelSettings.model:
        if other is None:
            refuse_unchanged(settings)
        reader = open_reader(settings, examples[0].use, selection.tower)
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


def refuse_unchanged(settings: ModelSettings) -> None:
    """Raises AttnvizError unless the model is the seeded one with a changed setting."""
    if settings.model == ModelSettings.model and _changed_settings(settings):
        return
    flags = [
        flag(name, example) for name, example in COMPARABLE_SETTINGS.items() if settings.model == ModelSettings.model
    ]
    raise AttnvizError(f"nothing to compare; add {or_list([*flags, '--with TEXT', '--with-model MODEL'])}")


def _changed_settings(settings: ModelSettings) -> list[str]:
    """Returns the names of the comparable settings that differ from the defaults."""
    return [name for name in COMPARABLE_SETTINGS if getattr(settings, name) != getattr(ModelSettings, name)]


def record_models(
    text: Subject,
    other: Subject | None,
    settings: ModelSettings,
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

    recording_a = record(text, settings, selection, values=values)
    other_model = on_base(model, settings.model) if row_of(settings.model) is PRETRAINED else model
    other_settings = replace(settings, model=other_model)
    recording_b = record(text if other is None else other, other_settings, selection, values=values)
    are_namesakes = recording_b.model == recording_a.model  # as two functions may build models of one class
    change = f"the change to {other_model if are_namesakes else recording_b.model}"
    if other is not None:
        change += " and another text"
    return recording_a, recording_b, change


def explained(
    subject: Subject,
    settings: ModelSettings,
    selection: Selection,
    removal: Removal,
    *,
    records: bool,
) -> "tuple[Why, Recording | None]":
    """Returns why a model predicts a token after the last selected query, and with ``records`` its attention."""
    reader, example = _predicting_reader(subject, settings, selection)
    example = reader.answered(example)  # each run reads the same answer
    position = None
    if selection.queries != (None, None):
        position = resolve_span(selection.queries, len(reader.read(example).tokens), "queries").stop - 1
    [replace_by] = _replacements(removal.replace_by, [], 1)
    why = reader.why(example, removal.token, removal.versus, position, controls=removal.controls, replace_by=replace_by)
    return why, reader.record(example, Selection()) if records else None


def explained_prompts(batch: Path, input: Input, settings: ModelSettings, removal: Removal) -> "Behaviour":
    """Returns what the predictions after the prompts of a file rest on; an answer of the options is that of all."""
    columns = [*ANSWER_COLUMNS, GROUP_COLUMN, *([CORRUPT_COLUMN] if removal.replace_by == CORRUPT_COLUMN else [])]
    prompts = _answered(read_batch(batch, input, columns), removal)
    replacements = _replacements(removal.replace_by, prompts, len(prompts))
    # in both halves of the prompts, one would test itself
    unique: dict[tuple[str | None, ...], tuple[BatchPrompt, str]] = {}
    for prompt, replace_by in zip(prompts, replacements, strict=True):
        unique.setdefault((prompt.text, prompt.token, prompt.versus), (prompt, replace_by))
    repeated = len(prompts) - len(unique)
    prompts, replacements = [prompt for prompt, _ in unique.values()], [by for _, by in unique.values()]
    if repeated:
        remark(f"{repeated} prompt{' is' if repeated == 1 else 's are'} repeated and left out")
    refuse_untrained(settings.model)
    examples = [Example.of(prompt.text, settings) for prompt in prompts]
    reader = open_reader(settings, examples[0].predicting_use)
    from attnviz.api.why import behaviour_of_examples
    from attnviz.effects.prompt_runs import StopRequest

    request = StopRequest()

    def stop() -> bool:
        request.is_made = request.is_possible
        end = (
            "after this prompt, with an answer" if request.is_made else "before heads are tested, so there is no answer"
        )
        remark(f"stopped {end}")
        return request.is_made

    with cleanup_on_signals(stop):
        return behaviour_of_examples(
            reader,
            examples,
            [prompt.token for prompt in prompts],
            [prompt.versus for prompt in prompts],
            [prompt.place for prompt in prompts],
            replacements,
            [prompt.group or "" for prompt in prompts],
            removal.controls,
            top=removal.top,
            stop=request,
        )


def _answered(prompts: list[BatchPrompt], removal: Removal) -> list[BatchPrompt]:
    """Returns the prompts with the answer of the options, which is that of all; refuses prompts that have their own."""
    answer = {name: value for name in ANSWER_COLUMNS if (value := getattr(removal, name)) is not None}
    for name, value in answer.items():
        place = next((prompt.place for prompt in prompts if getattr(prompt, name)), None)
        if place is not None:
            raise AttnvizError(
                f"{option(name, value)} is for all prompts, and {place} has its own; give one of the two"
            )
    return [replace(prompt, **answer) for prompt in prompts]


def _replacements(replace_by: str, prompts: list[BatchPrompt], count: int) -> list[str]:
    """Returns what removed heads write in each text: ``zero``, ``mean``, or another text with that output.

    ``corrupt`` stands for the text in the column of each prompt.
    """
    if replace_by != CORRUPT_COLUMN:
        return [replace_by] * count
    if not prompts:
        raise AttnvizError(
            f"{flag('replace_by', CORRUPT_COLUMN)} is the column {CORRUPT_COLUMN!r} of a table; give one with "
            f"{flag('batch', 'prompts.csv')}, or the other text itself"
        )
    place = next((prompt.place for prompt in prompts if prompt.corrupt is None), None)
    if place is not None:
        raise AttnvizError(f"{place}, column {CORRUPT_COLUMN!r}: there is no text; write one")
    return [prompt.corrupt or "" for prompt in prompts]


def effects_of_units(
    subject: Subject, settings: ModelSettings, selection: Selection, by: str
) -> "tuple[Recording, UnitEffects]":
    """Returns the recording of a text, and what each of its units rests on."""
    reader, example = _predicting_reader(subject, settings, selection)
    from attnviz.api.unit_effects import unit_effects

    return unit_effects(reader, example, selection, by)


def _read_again(recording: "Recording", path: str, settings: ModelSettings) -> tuple[ModelSettings, Example]:
    """Returns the settings of the model that made a recording, and the example with the same tokens."""
    from attnviz.media.image import Image
    from attnviz.media.sound import Sound
    from attnviz.text.server_answer import ServerAnswer

    own, cross = recording.settings, next((maps for maps in recording.maps if maps.kind == "cross"), None)
    tokens = recording.maps[0].query_tokens if cross is None else cross.query_tokens
    axes = [tokens] if cross is None else [tokens, cross.key_tokens]
    model, texts = own.get("model"), len({maps.item for maps in recording.maps})
    media = [medium for axis in axes for medium in axis.media if isinstance(medium, (Image, Sound))]
    text = " ".join(tokens.text.split())[:QUOTED_LENGTH]
    reason = "" if isinstance(model, str) else "does not name the model that made it"
    given = repr(text) if text else "what was read"
    if texts > 1:
        reason = f"holds {texts} texts, and this command explains one"
        given = f"one of them{f', such as {text!r},' if text else ''} or for attnviz why all of them with --batch FILE,"
    elif media:
        medium = media[0]
        noun = "picture" if isinstance(medium, Image) and not medium.seconds else "sound"
        reason = f"holds its {noun} only as it is drawn, which is less than the model reads"
        given = f"the file of the {noun}{f' ({medium.title})' if medium.title else ''}, with its text if it has one,"
    elif cross is None and (tokens.ids < 0).any():
        reason = "has tokens without the ids of a model"
    if reason:
        raise AttnvizError(f"{path!r} {reason}; give {given} and {option('model', str(model or 'MODEL'))}")
    assert isinstance(model, str)
    if row_of(model) is not PRETRAINED:
        names = used_settings(model)
        kept = {name: value for name, value in own.items() if name in names}
        settings = replace(settings, **kept)
        return settings, Example.of(tokens.text, settings)
    if not Path(model).expanduser().exists():
        raise AttnvizError(f"{path!r} was made with {model!r}, which is not here; give the text and --model")
    settings = replace(settings, model=model, dtype=str(own.get("dtype", settings.dtype)))
    if cross is None:
        return settings, Example(answer=ServerAnswer(tuple(tokens.ids.tolist())))
    # an encoder-decoder: its decoder reads a text of its own, or what it writes again
    settings = replace(settings, generate=int(own.get("generate") or 0), attention="cross")
    source = cross.key_tokens.text
    return settings, Example(source) if settings.generate else Example(tokens.text, context=source)


def _predicting_reader(subject: Subject, settings: ModelSettings, selection: Selection) -> "tuple[Reader, Example]":
    """Returns the reader of a trained model that predicts tokens, and the example that it reads."""
    if subject.kind is Kind.RECORDING:
        settings, example = _read_again(subject.recording(), subject.source, settings)
    else:
        example = subject.example(settings, "why runs the model on a text, and this file names neither; give a text")

    refuse_untrained(settings.model)
    reader = open_reader(settings, example.predicting_use, selection.tower)
    reader.keeps_factors = True  # a page explains each score by its query and key
    return reader, example


def ablation_effects(
    input: Input,
    settings: ModelSettings,
    selection: Selection,
    removal: Removal,
    batch: Path | None,
) -> "Effects":
    """Returns how a metric changes in each text without a head, or without a set of heads."""
    from attnviz.effects.effect_table import ANSWERED

    prompts: list[BatchPrompt] = []
    if batch is not None:
        metric = removal.metric
        columns = list(ANSWER_COLUMNS) if metric in (None, "logit") else ["token"] if metric in ANSWERED else []
        columns += [CORRUPT_COLUMN] if removal.replace_by == CORRUPT_COLUMN else []
        prompts = _answered(read_batch(batch, input, columns), removal)
        examples: list[Example | None] = [Example.of(prompt.text, settings) for prompt in prompts]
    elif input == Input() and row_of(settings.model).has_example and not is_piped():
        examples = [None]  # the model's own
    else:
        refusal = "ablate runs the model on a text, and a saved file holds no model; give a text"
        subjects = read_texts(input, settings, None)
        examples = [subject.example(settings, refusal, media=(Kind.IMAGE,)) for subject in subjects]
    refuse_untrained(settings.model)
    from attnviz.api.ablation import effects_of_examples, use_for_effects
    from attnviz.effects.controls import refuse_other_length

    use = use_for_effects([example for example in examples if example is not None], removal.metric)
    reader = open_reader(settings, use, selection.tower)
    prepared_inputs = [reader.built_in_example() if example is None else reader.read(example) for example in examples]
    if selection.queries != (None, None):
        prepared_inputs = [
            replace(
                example,
                positions=resolve_span(selection.queries, len(example.tokens), "queries"),
                positions_remark="",
            )
            for example in prepared_inputs
        ]

    corrupt: list[Any] = [None] * len(examples)
    if removal.replace_by not in ("zero", "mean"):
        places = [prompt.place for prompt in prompts] or [""] * len(examples)
        texts = _replacements(removal.replace_by, prompts, len(examples))
        for index, (example, text, place) in enumerate(zip(prepared_inputs, texts, places, strict=True)):
            other = reader.read(Example.of(text, reader.settings))
            refuse_other_length(len(example.tokens), len(other.tokens), place)
            corrupt[index] = other.inputs
    from attnviz.effects.ablation import Ablation

    ablation = Ablation(
        reader.module,
        removal.metric,
        heads=None if selection == Selection(queries=selection.queries) else selection,
        sets=None if removal.sets is None else removal.sets.split(","),
        pairs=removal.pairs,
        top=removal.top,
        controls=removal.controls,
        replace_by="mean" if removal.replace_by == "mean" else "zero",
    )
    answers = [prompt.token for prompt in prompts] or [removal.token] * len(examples)
    others = [prompt.versus for prompt in prompts] or [removal.versus] * len(examples)
    return effects_of_examples(reader, prepared_inputs, ablation, answers, others, corrupt)
