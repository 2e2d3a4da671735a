"""Defines the commands, which call the library and write its results, and `main`, which picks the exit code.

Imports stand in the functions where ``--help`` and refusals do not need them: torch and numpy take longer than a short
command. `expand_options` says how groups of options become those of a command.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnviz.base.errors import AttnvizError, option
from attnviz.base.options import declared_options
from attnviz.base.printable import remark
from attnviz.base.progress import begin
from attnviz.cli import options as declared
from attnviz.cli.defaults import describe_defaults, read_defaults, with_origin
from attnviz.cli.help import TOPICS, Command, Program, ShortHelp, other_suffixes
from attnviz.cli.options import TYPED, Input, Output, Removal, expand_options, refuse_typed
from attnviz.cli.output import (
    deliver,
    deliver_file,
    explanation_suffix,
    fit_options,
    kind_of,
    print_path,
    refuse_output,
    suggest_next,
    with_remark_lines,
    words_suffix,
    write,
)
from attnviz.models.reading.settings import ModelSettings
from attnviz.report.picture.look import Look, refuse_uninspected
from attnviz.report.picture.options import (
    CONTRIBUTIONS,
    STEPS,
    All,
    Axes,
    Of,
    Rank,
    Reduction,
    ReportOptions,
    Table,
    look_of,
    refuse_unread_of,
)
from attnviz.text.selection import Grouping, Selection
from attnviz.version import __version__

if TYPE_CHECKING:
    from attnviz.corpus.survey import Survey

app = typer.Typer(
    name="attnviz",
    cls=Program,
    add_completion=True,
    pretty_exceptions_enable=False,
)
command = partial(app.command, cls=Command)
SAMPLE_WIDTH = 48  # characters of a sample text in the list of samples
INTERRUPTED = 130  # 128 and the number of the signal, as shells report it
# The --pair of explain is another option: two tokens.
EXPLAINED_MODEL = tuple(name for name in declared_options(ModelSettings) if name != "pair")
SAVED_OPTIONS = ("layers", "heads", "of", "batch", "output", "force", "half")  # that a recording obeys
TRAINED = ModelSettings(model="trained")  # of a command that an untrained model gives nothing to explain
TESTED_MODEL = ("model", "device", "dtype", "device_map")  # settings of a model that runs on texts of its own


@command()
@expand_options
def show(
    input: Input,
    settings: ModelSettings,
    selection: Selection,
    grouping: Grouping,
    rank: Rank,
    look: Look,
    output: Output,
    reduction: Reduction,
    table: Table = None,
    all: All = False,
    of: Of = "weights",
    axes: Axes = None,
    metric: declared.OwnMetrics = None,
    half: declared.SaveHalf = False,
    recordings: declared.Recordings = None,
    batch: declared.Batch = None,
) -> None:
    """Draw the attention of each head over a text, or save it with -o run.safetensors."""
    from attnviz.cli.runs import (
        add_own_metrics,
        read_batch,
        read_input,
        record,
        record_batch,
        refuse_undrawable,
    )
    from attnviz.cli.subject import RECORDING
    from attnviz.render.formats import FILMS

    # Each kind of result returns. First those that are not drawn: films of saved recordings, and a recording to save.
    refuse_output(output, others=other_suffixes("show"))
    has_contributions = of == CONTRIBUTIONS
    if recordings or (output.suffix in FILMS and table != STEPS):
        from attnviz.cli.decoding import write_film_of_recordings

        write_film_of_recordings([str(input.text), *(recordings or ())], selection, grouping, look, output)
        return
    if output.suffix == RECORDING:
        _save_recording(input, settings, selection, output, batch, values=has_contributions, half=half)
        return
    if half:
        raise AttnvizError(f"{option('half')} is for a recording, which -o run.safetensors writes; leave it out")
    options = ReportOptions(
        **vars(rank),
        **vars(reduction),
        selection=selection,
        grouping=grouping,
        table=table,
        all=all,
        of=of,
        axes=axes,
        look=look,
    )

    # Then what the input or the suffix decides: the cards of a survey, a film of steps, the words of a sound.
    subject = read_input(input, settings, grouping) if batch is None else None
    add_own_metrics(metric, subject)
    if subject is not None and subject.survey is not None:
        _show_survey(subject.survey, options, output)
        return
    if subject is not None and output.suffix in FILMS:
        from attnviz.cli.decoding import write_film_of_steps

        write_film_of_steps(record(subject, settings, selection), options, output)
        return
    if metric and rank.sort is None and rank.filter is None and kind_of(output) != "page":
        raise AttnvizError(
            f"{option('metric', metric[0])} adds a number to sort and filter heads by; add {option('sort')} with its "
            "name, or draw a page; attnviz heads lists it"
        )
    suffix_of_words = None if subject is None else words_suffix(output, subject)
    if subject is not None and suffix_of_words is not None:
        from attnviz.cli.decoding import write_spoken_words

        write_spoken_words(record(subject, settings, selection, whole=True), selection, output, suffix_of_words)
        return

    # Else a picture, a page or a file of numbers: one recording, one report, one renderer.
    options = fit_options(options, output)  # refuses what this medium cannot draw before a model runs
    refuse_undrawable(subject, settings, options)
    if subject is None:
        assert batch is not None
        recording = record_batch(read_batch(batch, input), settings, selection, values=has_contributions)
    else:
        kind = kind_of(output)
        recording = record(
            subject,
            settings,
            selection,
            whole=kind == "data",  # a file of numbers has all of the selected maps
            values=has_contributions,
            factors=kind == "page",  # a page explains each score by its query and key
        )
    from attnviz.report.build import build_report

    remark_lines = int(recording.untrained) + int(input == Input())
    deliver(build_report(recording, with_remark_lines(options, remark_lines)), output)
    if recording.untrained and output.suffix is None:
        suggest_next("for trained heads: attnviz show sample:repeat --model trained")


def _save_recording(
    input: Input,
    settings: ModelSettings,
    selection: Selection,
    output: Output,
    batch: Path | None,
    *,
    values: bool,
    half: bool,
) -> None:
    """Saves the attention over a text, to show it later without the model."""
    from attnviz.cli.runs import read_batch, read_input, record, record_batch
    from attnviz.cli.subject import RECORDING, Kind
    from attnviz.maps.saved import save

    path = output.file
    if path is None:
        raise AttnvizError(f"a recording is written to a file; use -o run{RECORDING}")
    refuse_typed(
        (*declared_options(Input), *declared_options(ModelSettings), *SAVED_OPTIONS),
        f"changes nothing in a recording, which holds all numbers of its heads; give it to attnviz show {path}",
    )
    if batch is None:
        subject = read_input(input, settings)
        if not subject.is_run and subject.kind is not Kind.ARRAYS:
            raise AttnvizError(f"{subject.source!r} is saved already; attnviz show {subject.source} draws it")
        if not subject.is_run and selection != Selection():
            raise AttnvizError(f"arrays are saved whole; choose layers and heads with attnviz show {path}")
        recording = record(subject, settings, selection, values=values)
    else:
        recording = record_batch(read_batch(batch, input), settings, selection, values=values)
    if half:
        from attnviz.maps.cell_maps import halve

        recording = halve(recording)
    save(recording, path, output.force)
    print_path(path)


def _show_survey(survey: "Survey", options: ReportOptions, output: Output) -> None:
    """Draws the cards of a survey's heads."""
    from attnviz.report.survey.tables import refuse_text_options, survey_card_report

    refuse_text_options(options)
    if kind_of(output) == "page" and survey.model_folder is not None:
        remark(
            f"the {survey.example_noun} are shaded with the model in {survey.model_folder!r}, which the survey names"
        )
    deliver(survey_card_report(survey, fit_options(options, output)), output)


@command()
@expand_options
def heads(
    *,
    input: Input,
    settings: ModelSettings,
    selection: Selection,
    grouping: Annotated[Grouping, ("by",)],
    rank: Rank,
    look: Annotated[Look, look_of("an atlas")],
    output: Output,
    all: All = False,
    of: Of = "weights",
    metric: declared.OwnMetrics = None,
    effects: declared.EffectsFile = None,
    reference: declared.ReferenceFile = None,
    batch: declared.Batch = None,
    types: declared.KnownTypes = False,
) -> None:
    """List what every head does, as a table or, with -o, as an atlas."""
    from attnviz.cli.runs import add_own_metrics, read_reference, read_texts, record

    refuse_output(output, "atlas")
    if types:
        from attnviz.base.machine import refuse_little_memory

        refuse_typed(
            ("types", "metric", *TESTED_MODEL, *look_of("results of heads"), *declared_options(Output)),
            f"does not apply to {option('types')}, which tests a whole model on texts of its own; leave it out",
        )
        from attnviz.models.sources import UNPROBED, refuse_untrained

        refuse_untrained(settings.model, UNPROBED)
        refuse_little_memory()
        from attnviz.base.own_file import own_function
        from attnviz.battery.head_types import head_types
        from attnviz.battery.own_type import OwnType
        from attnviz.battery.probed_model import open_probed
        from attnviz.report.heads.results import battery_report

        tested = ModelSettings(**{name: getattr(settings, name) for name in TESTED_MODEL})
        own_types = [OwnType(own_function("metric", address)) for address in metric or ()]
        types_of_heads = head_types(open_probed(tested), own=own_types)
        deliver(battery_report(types_of_heads, fit_options(ReportOptions(look=look), output)), output)
        return
    texts = read_texts(input, settings, batch, grouping)
    add_own_metrics(metric, texts[0])
    options = ReportOptions(**vars(rank), selection=selection, grouping=grouping, all=all, of=of, look=look)
    options = fit_options(options, output)
    survey = texts[0].survey if len(texts) == 1 else None
    if survey is not None:
        from attnviz.report.survey.tables import survey_heads_report

        if grouping != Grouping():
            raise AttnvizError(f"{option('by', grouping.units)} needs the tokens of a text; leave it out for a survey")
        if effects is not None:
            raise AttnvizError(f"{option('effects')} needs the heads of a text, and this is a survey; leave it out")
        if reference is not None:
            raise AttnvizError(f"{option('reference')} needs one text or sound, and this is a survey; leave it out")
        deliver(survey_heads_report(survey, options), output)
        return
    table = None
    if effects is not None:
        from attnviz.report.heads.head_numbers import load_effects

        table = load_effects(str(effects))
    from attnviz.report.heads.head_atlas import heads_report, refuse_unlistable

    refuse_unlistable(options, table)
    has_contributions = of == CONTRIBUTIONS
    recordings = tuple(record(text, settings, selection, whole=True, values=has_contributions) for text in texts)
    if table is not None:
        from attnviz.report.heads.head_numbers import refuse_other_heads

        layers = [maps for recording in recordings for maps in recording.maps]
        recorded_heads = {maps.known_head(head).name for maps in layers for head in maps.heads}
        refuse_other_heads(table, str(effects), recorded_heads)
    known = None if reference is None else read_reference(reference)
    deliver(heads_report(recordings, options, table, known), output)


@command()
@expand_options
def compare(
    input: Input,
    settings: ModelSettings,
    selection: Selection,
    grouping: Grouping,
    rank: Rank,
    look: Look,
    output: Output,
    other: declared.Other = None,
    with_model: declared.WithModel = None,
    second: declared.Second = None,
    all: All = False,
    of: Of = "weights",
) -> None:
    """Draw what changes with --causal, another text, model or recording."""
    from attnviz.cli.runs import (
        read_comparison,
        read_effects_pair,
        read_input,
        read_surveys,
        record_both,
        record_models,
        refuse_unchanged,
    )

    refuse_output(output)
    options = ReportOptions(**vars(rank), selection=selection, grouping=grouping, all=all, of=of, look=look)
    tables = read_effects_pair(input.text, second or other)
    if tables is not None:
        from attnviz.report.heads.results import effects_comparison_report

        if with_model is not None or settings != ModelSettings():
            raise AttnvizError("saved effects are compared without a model; leave the options of the model out")
        unread = [name for name, value in vars(input).items() if name != "text" and value is not None]
        unread += ["with"] if second is not None and other is not None else []
        if unread:
            raise AttnvizError(f"two tables of saved effects are compared; leave {option(unread[0])} out")
        deliver(effects_comparison_report(*tables, fit_options(options, output)), output)
        return
    other_input = read_comparison(other, second)
    if input == Input() and other_input is None and with_model is None:
        refuse_unchanged(settings)
    text = read_input(input, settings, grouping)
    other_input = None if other_input is None else text.sharing_media(other_input)
    surveys = read_surveys(text, other_input) if with_model is None and other_input is not None else None
    if surveys is not None:
        from attnviz.report.survey.tables import refuse_text_options, survey_comparison_report

        refuse_text_options(options)
        refuse_unread_of("a comparison of surveys", kind_of(output), TYPED.get())
        deliver(survey_comparison_report(*surveys, fit_options(options, output)), output)
        return
    from attnviz.report.maps.comparison import comparison_report, refuse_incomparable

    refuse_incomparable(options)
    options = fit_options(options, output)  # refuses what this medium cannot draw before a model runs
    has_contributions = of == CONTRIBUTIONS
    if with_model is None:
        before, after, change = record_both(
            text, other_input, settings, selection, whole=kind_of(output) == "data", values=has_contributions
        )
    else:
        before, after, change = record_models(
            text, other_input, settings, with_model, selection, values=has_contributions
        )
    remark_lines = int(input == Input())  # the remark on the sample text takes a line of the terminal
    deliver(comparison_report(before, after, change, with_remark_lines(options, remark_lines)), output)


@command()
@expand_options
def explain(
    *,
    input: Input,
    settings: Annotated[ModelSettings, EXPLAINED_MODEL],
    output: Output,
    head: declared.Head = "0",
    step: declared.Step = None,
    pair: declared.Pair = None,
    all: declared.AllSteps = False,
    look: Annotated[Look, ("title", "ascii")],
) -> None:
    """Walk through the computation of one head, step by step."""
    from attnviz.cli.runs import compute, read_input
    from attnviz.text.selection import parse_head

    suffix = explanation_suffix(output)
    layer, number = parse_head(head)
    if step is not None and pair is not None:
        raise AttnvizError(f"{option('step', step)} and {option('pair')} each choose one step; give one of them")
    if step is not None:
        from attnviz.explain.explain import refuse_unlearned_step

        refuse_unlearned_step(step, settings.model)
    computation = compute(read_input(input, settings), settings, layer)
    from attnviz.explain.explain import explain as explain_head
    from attnviz.explain.files import line_width
    from attnviz.explain.files import write as write_explanation
    from attnviz.render.terminal.lines import look_of_terminal

    remark_lines = int(input == Input())  # the remark on the sample text
    sized_look = look_of_terminal(look, remark_lines) if output.suffix is None else look
    shown_look = replace(sized_look, height=None if all else sized_look.height, for_command_line=True)
    explanation = explain_head(computation, number, step, line_width(suffix, shown_look), shown_look, pair)
    deliver_file(output, partial(write_explanation, explanation, suffix))


@command()
@expand_options
def ablate(
    *,
    input: Input,
    settings: ModelSettings,
    selection: Annotated[Selection, ("layers", "heads", "queries")],
    look: Annotated[Look, look_of("results of heads")],
    output: Output,
    removal: Removal,
    batch: declared.Batch = None,
) -> None:
    """Remove each head and measure what the output loses."""
    from attnviz.cli.runs import ablation_effects

    refuse_output(output, "atlas")
    effects = ablation_effects(input, settings, selection, removal, batch)
    from attnviz.report.heads.results import effects_report

    deliver(effects_report(effects, fit_options(ReportOptions(look=look), output)), output)


@command()
@expand_options
def why(
    *,
    input: Input,
    settings: ModelSettings = TRAINED,
    selection: Annotated[Selection, ("layers", "heads", "queries")],
    grouping: Annotated[Grouping, ("by",)],
    look: Annotated[Look, look_of("an explained prediction")],
    output: Output,
    removal: Annotated[Removal, ("token", "versus", "replace_by", "top", "controls")],
    batch: declared.Batch = None,
    all: All = False,
) -> None:
    """Explain what a prediction rests on, those of a --batch, or with --by each sentence, and check it by removal."""
    from attnviz.cli.runs import effects_of_units, explained, explained_prompts, read_input

    refuse_output(output, "why")
    if kind_of(output) != "page":
        refuse_unread_of("a picture of changes, whose colours are centred on 0", kind_of(output), TYPED.get())
    is_own_choice = settings.model != TRAINED.model or "model" in TYPED.get()
    options = fit_options(ReportOptions(all=all, look=look), output)
    choice = "No model was given, so this is the trained model of attnviz, which learned to continue repeats."
    if batch is not None:
        unread_names = [name for name in ("by", "layers", "heads", "queries") if name in TYPED.get()]
        if unread_names:
            reason = "explains the last token of each prompt through all heads"
            raise AttnvizError(f"{option('batch')} {reason}; leave {option(unread_names[0])} out")
        behaviour = explained_prompts(batch, input, settings, removal)
        from attnviz.report.behaviour import behaviour_report

        own_remarks = () if is_own_choice else (choice,)
        deliver(behaviour_report(replace(behaviour, remarks=(*own_remarks, *behaviour.remarks)), options), output)
        return
    if removal.top is not None:
        raise AttnvizError(
            f"{option('top', removal.top)} chooses heads by their removal on many prompts; give these with "
            f"{option('batch', 'prompts.csv')}, or leave it out"
        )
    subject = read_input(input, settings, grouping)
    remarks = () if is_own_choice or not subject.is_run else (choice,)
    unread: tuple[str, ...] = ("layers", "heads")
    if grouping.by is not None:
        unread = ("token", "versus", "controls", "queries", "all")
        unread += ("replace_by",) if removal.replace_by != "zero" else ()
    unread_name = next((name for name in unread if name in TYPED.get()), None)
    if unread_name is not None:
        reason = f"choose where units look; add {option('by', 'sentences')}, or leave them out"
        if grouping.by is not None:
            reason = f"is about one token, and {option('by', grouping.by)} about whole units; leave one of them out"
        raise AttnvizError(f"{option(unread_name)} {reason}")
    if grouping.by is not None:
        unit_recording, effects = effects_of_units(subject, settings, selection, grouping.units)
        from attnviz.report.unit_effects import unit_effects_report

        deliver(unit_effects_report(unit_recording, effects, options, remarks), output)
        return
    is_page = kind_of(output) == "page"
    answer, recording = explained(subject, settings, selection, removal, records=is_page)
    answer = replace(answer, remarks=(*remarks, *answer.remarks))
    from attnviz.report.why import why_report

    deliver(why_report(answer, options, recording), output)


@command()
@expand_options
def browse(
    input: Input,
    settings: ModelSettings,
    selection: Selection,
    grouping: Annotated[Grouping, ("by", "words")],
    look: Look,
    other: declared.Other = None,
    of: Of = "weights",
    metric: declared.OwnMetrics = None,
    at: declared.At = None,
) -> None:
    """Explore all heads in a full-screen view."""
    from attnviz.browse.start import browse, refuse_browse
    from attnviz.cli.runs import add_own_metrics, read_input, record
    from attnviz.cli.subject import Kind, Subject

    refuse_browse()
    refuse_uninspected(look)
    subject, has_contributions = read_input(input, settings, grouping), of == CONTRIBUTIONS
    add_own_metrics(metric, subject)
    if subject.path is not None and subject.kind is Kind.SURVEY:
        from attnviz.cli.surveys import browse_survey_file

        has_map_options = other is not None or at is not None or look.effects is not None or has_contributions
        if has_map_options or grouping != Grouping():
            names = "--with, --at, --effects, --of and --by"
            raise AttnvizError(f"{names} do not apply to a survey, which has no maps; leave them out")
        raise typer.Exit(browse_survey_file(subject.path, selection, look))
    recording = record(subject, settings, selection, values=has_contributions)
    other_recording = None
    if other is not None:
        other_recording = record(Subject.of(other).drawable(), settings, selection, values=has_contributions)
    if has_contributions:
        from attnviz.maps.derived import contributions_of

        recording = contributions_of(recording)
        other_recording = None if other_recording is None else contributions_of(other_recording)
    raise typer.Exit(browse(recording, other_recording, selection, look, subject.path, at, grouping))


@command("survey")
@expand_options
def survey_command(
    *,
    corpus: declared.Corpus = None,
    column: declared.Column = None,
    tokens: declared.TokenLimit = None,
    window: declared.Window = None,
    settings: Annotated[ModelSettings, TESTED_MODEL],
    selection: Annotated[Selection, ("layers", "heads")],
    token_class: declared.TokenClass = None,
    metric: declared.OwnMetrics = None,
    output: Annotated[Output, ("output", "force")],
    resume: declared.Resume = False,
) -> None:
    """Summarise every head over a corpus and save the result."""
    from attnviz.cli.runs import add_own_metrics
    from attnviz.cli.surveys import survey_path, write_survey
    from attnviz.models.sources import UNSURVEYED, refuse_untrained

    path = survey_path(output, resume)
    refuse_untrained(settings.model, UNSURVEYED)
    add_own_metrics(metric)
    paths, classes = tuple(corpus or ()), tuple(token_class or ())
    if write_survey(paths, settings, selection, path, output.force, resume, column, tokens, window, classes):
        print_path(path)


@command()
@expand_options
def info(topic: declared.Topic = None) -> None:
    """List sample texts and pictures, devices, and defaults that you set."""
    for name in TOPICS if topic is None else [topic]:
        if topic is None:
            write(f"{name}:\n".encode())
        match name:
            case "samples":
                lines = _sample_lines()
            case "devices":
                from attnviz.base.machine import describe_devices

                # Each device under the name that --device takes.
                lines = (f"{name:8} {description}\n" for name, description in describe_devices())
            case _:
                lines = iter([describe_defaults()])
        for line in lines:
            write(line.encode(errors="surrogateescape"))
    if topic == "samples":
        suggest_next("attnviz show sample:pronoun draws one of them")


def _sample_lines() -> Iterator[str]:
    """Yields a line for each sample text, with its number of words and its start, and for each sample picture."""
    from attnviz.text.samples import read_sample, sample_pictures, samples

    for name in samples():
        words = read_sample(name).split()
        text = " ".join(words)
        text_start = text if len(text) <= SAMPLE_WIDTH else f"{text[: SAMPLE_WIDTH - 1]}…"
        yield f"{name:12} {len(words):5} words  {text_start}\n"
    for name in sample_pictures():
        yield f"{name:12}       picture, for sample:{name} --model trained-picture\n"


def show_version(is_requested: bool) -> None:
    """Prints the version and exits if ``--version`` was given; else does nothing."""
    if is_requested:
        write(f"attnviz {__version__}\n".encode())
        raise typer.Exit


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=show_version, is_eager=True)
    ] = False,
    brief: ShortHelp = False,
) -> None:
    """See exactly what a transformer attends to, in the terminal or a figure."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)
    values = {name: default.value for name, default in read_defaults().items()}
    context.default_map = {context.invoked_subcommand: values}


def program(words: Sequence[str]) -> typer.Typer:
    """Returns the program with only the command that the first word names, to start faster, or with all commands.

    For ``--version`` it has any one command.
    """
    first_word = words[0] if words else ""
    matching_commands = [
        command
        for command in app.registered_commands
        if first_word == (command.name or getattr(command.callback, "__name__", ""))
    ]
    if first_word == "--version":
        matching_commands = app.registered_commands[:1]
    if not matching_commands:
        return app
    single_command = copy(app)
    single_command.registered_commands = matching_commands
    return single_command


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line and returns its exit code: 0 done, 1 refused, 2 usage, 130 interrupted.

    Prints the reason of codes 1 and 2. A failure of the system, such as a lack of memory, has code 1; any other
    exception is raised. An output that its reader closed early counts as done. ``help`` as the first word means
    ``--help`` as the last.
    """
    words = sys.argv[1:] if arguments is None else [*arguments]
    if words[:1] == ["help"]:  # as in git and cargo: attnviz help show
        words = [*words[1:], "--help"]
    begin()
    try:
        with interrupts_first():
            return program(words)(args=words, prog_name="attnviz", standalone_mode=False) or 0
    except AttnvizError as error:
        remark(with_origin(error, words))
        return 1
    except typer.TyperException as error:
        from attnviz.cli.suggestions import usage_line

        remark(usage_line(error, app, words))
        return error.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python flushes standard output once more when it ends
        return 0
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except Exception as error:
        from attnviz.base.machine import is_out_of_memory
        from attnviz.base.own_file import own_traceback

        own_lines = None if is_out_of_memory(error) else own_traceback(error)
        reason = failure_line(error)
        if own_lines is not None:
            print(own_lines, end="", file=sys.stderr)
        elif reason is None:
            raise
        else:
            remark(reason)
        return 1


@contextmanager
def interrupts_first() -> Iterator[None]:
    """Raises KeyboardInterrupt in place of an error that followed it, as where a half written archive is closed."""
    try:
        yield
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, KeyboardInterrupt):
            cause = cause.__context__
        if cause is not None:
            raise KeyboardInterrupt from error
        raise


def failure_line(error: Exception) -> str | None:
    """Returns the message for a lack of memory or an ``OSError``; ``None`` for any other error, which is a bug."""
    from attnviz.base.machine import is_out_of_memory

    if is_out_of_memory(error):
        return "not enough memory; use a shorter text, fewer heads or layers, or a smaller picture"
    if isinstance(error, OSError):
        return f"{error.strerror or error}" + ("" if error.filename is None else f": {str(error.filename)!r}")
    return None
