"""The command line: parses, calls, writes, and picks the exit code."""

import errno
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from attnviz.base.errors import AttnvizError
from attnviz.cli.input import as_given, read_batch, read_beside, read_input, read_texts
from attnviz.cli.options import (
    Ascii,
    Batch,
    Combine,
    Half,
    Head,
    Input,
    Look,
    Model,
    Other,
    Output,
    Rank,
    Second,
    Select,
    Step,
    Table,
    Title,
    WithModel,
    Words,
    spread_options,
)
from attnviz.cli.output import (
    deliver,
    deliver_file,
    explained_suffix,
    one_line,
    recording_path,
    refuse_output,
    remark,
    write,
)
from attnviz.cli.recordings import compute, record, record_batch, record_both, record_models
from attnviz.cli.settings import model_settings, parse_head, report_look, report_options
from attnviz.text.selection import Selection
from attnviz.version import __version__

app = typer.Typer(
    name="attnviz",
    help="Show what a transformer attends to: in the terminal, as a figure, with every number exact.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
@spread_options
def show(
    input: Input,
    model: Model,
    select: Select,
    words: Words,
    rank: Rank,
    look: Look,
    output: Output,
    combine: Combine,
    table: Table = None,
    batch: Batch = None,
) -> None:
    """Draw the attention of every chosen head over a text."""
    refuse_output(output)
    settings, selection = model_settings(input, model), Selection.parse(**vars(select))
    drawn_look = report_look(look)
    if batch is None:
        recording = record(read_input(input), settings, selection)
    else:
        recording = record_batch(read_batch(batch, input), settings, selection)
    from attnviz.maps.words import Grouping, regroup
    from attnviz.report.combined import combined_report
    from attnviz.report.heatmaps import build_report

    recording = regroup(recording, selection, Grouping(**vars(words)), table)
    options = report_options(selection, drawn_look, output, table, rank)
    if combine.reduce is None:
        deliver(build_report(recording, options), output)
    else:
        deliver(combined_report(recording, options, combine.reduce, combine.residual), output)


@app.command()
@spread_options
def heads(
    input: Input,
    model: Model,
    select: Select,
    rank: Rank,
    look: Look,
    output: Output,
    batch: Batch = None,
) -> None:
    """List what every head does: a table in the terminal, CSV or JSON, or the atlas as a figure."""
    refuse_output(output)
    settings, selection = model_settings(input, model), Selection.parse(**vars(select))
    drawn_look = report_look(look)
    recordings = tuple(record(text, settings, selection) for text in read_texts(input, batch))
    from attnviz.report.head_atlas import heads_report

    options = report_options(selection, drawn_look, output, rank=rank)
    deliver(heads_report(recordings, options), output)


@app.command()
@spread_options
def compare(
    input: Input,
    model: Model,
    select: Select,
    words: Words,
    rank: Rank,
    look: Look,
    output: Output,
    other: Other = None,
    with_model: WithModel = None,
    second: Second = None,
) -> None:
    """Draw what changes with --causal, --scale, --temperature, --seed, --dropout, another text or recording."""
    refuse_output(output)
    beside = read_beside(other, second)
    settings, selection = model_settings(input, model), Selection.parse(**vars(select))
    drawn_look = report_look(look)
    if with_model is None:
        before, after, change = record_both(read_input(input), beside, settings, selection)
    else:
        before, after, change = record_models(read_input(input), beside, settings, with_model, selection)
    from attnviz.maps.words import Grouping, regroup
    from attnviz.report.comparison import comparison_report

    before, after = (regroup(one, selection, Grouping(**vars(words))) for one in (before, after))
    options = report_options(selection, drawn_look, output, rank=rank)
    deliver(comparison_report(before, after, change, options), output)


@app.command("record")
@spread_options
def record_command(
    input: Input,
    model: Model,
    select: Select,
    output: Output,
    half: Half = False,
) -> None:
    """Save the attention over a text, to show and compare later without the model."""
    from attnviz.maps.saved import save

    path, selection = recording_path(output), Selection.parse(**vars(select))
    if select.queries is not None or select.keys is not None:
        raise AttnvizError("a recording holds every query and key; --queries and --keys choose when it is shown")
    text = read_input(input)
    if isinstance(text, Path):
        raise AttnvizError(f"{str(text)!r} is a recording already; attnviz show {text} draws it")
    recording = record(text, model_settings(input, model), selection)
    if half:
        from attnviz.maps.half import halve

        recording = halve(recording)
    save(recording, path, output.force)
    write(f"{path}\n".encode(errors="surrogateescape"))


@app.command()
@spread_options
def explain(
    input: Input,
    model: Model,
    output: Output,
    head: Head = "0",
    step: Step = None,
    title: Title = None,
    ascii: Ascii = False,
) -> None:
    """Tell the computation of one head step by step, with its own numbers (-o notes.html or notes.md)."""
    suffix = explained_suffix(output)
    settings, (layer, number) = model_settings(input, model), parse_head(head)
    numbers = compute(read_input(input), settings, layer)
    from attnviz.explain.explain import explain as tell
    from attnviz.explain.formats import room
    from attnviz.explain.formats import write as write_explanation
    from attnviz.report.look import Look as ReportLook
    from attnviz.report.look import on_terminal

    drawn_look = ReportLook(title=title, ascii=ascii)
    drawn_look = on_terminal(drawn_look) if output.output is None else drawn_look
    explanation = tell(numbers, number, step, room(suffix, drawn_look), drawn_look)
    deliver_file(output, partial(write_explanation, explanation, suffix))


@app.command()
@spread_options
def browse(
    input: Input,
    model: Model,
    select: Select,
    look: Look,
    other: Other = None,
) -> None:
    """Look through all heads, full-screen: arrows move, Enter opens one, ? lists the keys."""
    from attnviz.browse.start import browse, refuse_browse
    from attnviz.report.look import refuse_unused

    refuse_browse()
    settings, selection = model_settings(input, model), Selection.parse(**vars(select))
    drawn_look = report_look(look)
    refuse_unused(drawn_look, ("query", "style", "mark", "pool", "per_slide", "max_size"), "browse")
    recording = record(read_input(input), settings, selection)
    compared = None if other is None else record(as_given(other), settings, selection)
    raise typer.Exit(browse(recording, compared, selection, drawn_look))


@app.command()
def samples() -> None:
    """List the sample texts, for --sample NAME."""
    from attnviz.text.samples import read_sample, samples

    for name in samples():
        words = read_sample(name).split()
        start = " ".join(words)
        write(f"{name:12} {len(words):5} words  {start if len(start) <= 48 else start[:47] + '…'}\n".encode())


@app.command()
def devices() -> None:
    """List the devices that torch can use here, for --device NAME."""
    from attnviz.base.machine import describe_devices

    for name, description in describe_devices():
        write(f"{name:8} {description}\n".encode())


def show_version(wanted: bool) -> None:
    """Prints the version and ends."""
    if wanted:
        write(f"attnviz {__version__}\n".encode())
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=show_version, is_eager=True)
    ] = False,
) -> None:
    """Show what a transformer attends to: in the terminal, as a figure, with every number exact."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line and returns its exit code: 0 done, 1 refused, 2 usage, 130 interrupted.

    Args:
        arguments: what follows the program's name; ``None`` takes the process's own.
    """
    try:
        return app(args=arguments, prog_name="attnviz", standalone_mode=False) or 0
    except AttnvizError as error:
        remark(one_line(str(error)))
        return 1
    except typer.TyperException as error:
        remark(f"{one_line(error.format_message())} (attnviz --help lists what works)")
        return error.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        remark(f"cannot write all of the output: {error.strerror}; it is cut off")
        return 1
    except (KeyboardInterrupt, typer.Abort):
        return 130
