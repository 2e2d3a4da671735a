"""The command line: parses, calls, writes, and picks the exit code."""

import errno
import os
import stat
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from attnviz.errors import AttnvizError
from attnviz.options import Input, Look, Model, Output, Rank, Select, Words, spread_options
from attnviz.selection import Selection
from attnviz.version import __version__

if TYPE_CHECKING:
    from attnviz.look import Look as ReportLook
    from attnviz.maps import Recording
    from attnviz.report import Report, ReportOptions
    from attnviz.source import ModelSettings
    from attnviz.steps import Computation

app = typer.Typer(
    name="attnviz",
    help="Show what a transformer attends to: in the terminal, as a figure, with every number exact.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
CHANGES = ("causal", "scale", "temperature", "seed", "dropout")


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
    table: Annotated[
        str | None,
        typer.Option(help="Print the numbers: scores, weights or both.", rich_help_panel="Look", show_default=False),
    ] = None,
    batch: Annotated[
        Path | None,
        typer.Option(help="Attend to each line of this file, as one batch.", rich_help_panel="Input"),
    ] = None,
    reduce: Annotated[
        str | None,
        typer.Option(
            help="Combine all heads into one map: mean, max, rollout or flow.",
            rich_help_panel="Select",
            show_default=False,
        ),
    ] = None,
    residual: Annotated[
        float,
        typer.Option(help="The residual's share of a row, in rollout and flow.", rich_help_panel="Select"),
    ] = 0.5,
) -> None:
    """Draw the attention of every chosen head over a text."""
    refuse_output(output)
    settings, selection = model_settings(input, model), Selection.parse(**vars(select))
    drawn_look = report_look(look)
    if batch is None:
        recording = record(read_input(input), settings, selection)
    else:
        recording = record_batch(read_batch(batch, input), settings, selection)
    from attnviz.combined import combined_report
    from attnviz.report import build_report
    from attnviz.words import Grouping, regroup

    recording = regroup(recording, selection, Grouping(**vars(words)), table)
    options = report_options(selection, drawn_look, output, table, rank)
    if reduce is None:
        deliver(build_report(recording, options), output)
    else:
        deliver(combined_report(recording, options, reduce, residual), output)


@app.command()
@spread_options
def heads(
    input: Input,
    model: Model,
    select: Select,
    rank: Rank,
    look: Look,
    output: Output,
    batch: Annotated[
        Path | None,
        typer.Option(help="Take each line of this file as a text.", rich_help_panel="Input"),
    ] = None,
) -> None:
    """List what every head does: a table in the terminal, CSV or JSON, or the atlas as a figure."""
    refuse_output(output)
    settings, selection = model_settings(input, model), Selection.parse(**vars(select))
    drawn_look = report_look(look)
    recordings = tuple(record(text, settings, selection) for text in read_texts(input, batch))
    from attnviz.atlas import heads_report

    options = report_options(selection, drawn_look, output, rank=rank)
    deliver(heads_report(recordings, options, as_rows=is_table(output)), output)


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
    other: Annotated[
        str | None,
        typer.Option("--with", help="Compare with this text, of as many tokens.", rich_help_panel="Input"),
    ] = None,
    with_model: Annotated[
        str | None,
        typer.Option(help="Compare with this model.", rich_help_panel="Model", show_default=False),
    ] = None,
    second: Annotated[
        str | None,
        typer.Argument(help="A saved recording to compare the first with.", show_default=False),
    ] = None,
) -> None:
    """Draw what changes with --causal, --scale, --temperature, --seed, --dropout, another text or recording."""
    refuse_output(output)
    if second is not None and (other is not None or not is_recording(second)):
        raise AttnvizError(f"{second!r} is no recording beside the first; --with TEXT compares with another text")
    other = other if second is None else second
    settings, selection = model_settings(input, model), Selection.parse(**vars(select))
    drawn_look = report_look(look)
    if with_model is None:
        before, after, change = record_both(read_input(input), other, settings, selection)
    else:
        before, after, change = record_models(read_input(input), other, settings, with_model, selection)
    from attnviz.compare import comparison_report
    from attnviz.words import Grouping, regroup

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
    half: Annotated[
        bool,
        typer.Option("--half", help="Hold the factors of a long text in bfloat16.", rich_help_panel="Output"),
    ] = False,
) -> None:
    """Save the attention over a text, to show and compare later without the model."""
    from attnviz.files import save

    path, selection = recording_path(output), Selection.parse(**vars(select))
    if select.queries is not None or select.keys is not None:
        raise AttnvizError("a recording holds every query and key; --queries and --keys choose when it is shown")
    text = read_input(input)
    if is_recording(text):
        raise AttnvizError(f"{text!r} is a recording already; attnviz show {text} draws it")
    recording = record(text, model_settings(input, model), selection)
    if half:
        from attnviz.factored_file import halve

        recording = halve(recording)
    save(recording, path, output.force)
    write(f"{path}\n".encode(errors="surrogateescape"))


@app.command()
@spread_options
def explain(
    input: Input,
    model: Model,
    look: Look,
    output: Output,
    head: Annotated[
        str, typer.Option(help="The head that is shown, as 1, or layer.head as 0.1.", rich_help_panel="Select")
    ] = "0",
    step: Annotated[
        str | None, typer.Option(help="Show this step alone, as scores.", rich_help_panel="Select", show_default=False)
    ] = None,
) -> None:
    """Tell the computation of one head step by step, with its own numbers (-o notes.html or notes.md)."""
    suffix = explained_suffix(output)
    settings, drawn_look, (layer, number) = model_settings(input, model), report_look(look), parse_head(head)
    numbers = compute(read_input(input), settings, layer)
    from attnviz.explain import explain as tell
    from attnviz.render_explain import room
    from attnviz.render_explain import write as write_explanation

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
    other: Annotated[
        str | None,
        typer.Option("--with", help="Another saved recording, or a text, for the difference.", rich_help_panel="Input"),
    ] = None,
) -> None:
    """Look through all heads, full-screen: arrows move, Enter opens one, ? lists the keys."""
    from attnviz.browse import browse, refuse_browse

    refuse_browse()
    settings, selection = model_settings(input, model), Selection.parse(**vars(select))
    drawn_look = report_look(look)
    recording = record(read_input(input), settings, selection)
    compared = None if other is None else record(other, settings, selection)
    raise typer.Exit(browse(recording, compared, selection, drawn_look))


@app.command()
def samples() -> None:
    """List the sample texts, for --sample NAME."""
    from attnviz.samples import read_sample, samples

    for name in samples():
        words = read_sample(name).split()
        start = " ".join(words)
        write(f"{name:12} {len(words):5} words  {start if len(start) <= 48 else start[:47] + '…'}\n".encode())


@app.command()
def devices() -> None:
    """List the devices that torch can use here, for --device NAME."""
    from attnviz.devices import describe_devices

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


def record(text: str, settings: "ModelSettings", selection: Selection) -> "Recording":
    """The recording of a text, or the one that the text names."""
    if is_recording(text):
        from attnviz.files import load

        return load(Path(text))
    from attnviz.source import open_source

    return open_source(settings).record(text, selection)


def record_batch(texts: list[str], settings: "ModelSettings", selection: Selection) -> "Recording":
    """The recording of several texts, run together."""
    from attnviz.source import open_source

    return open_source(settings).record_batch(texts, selection)


def compute(text: str, settings: "ModelSettings", layer: int) -> "Computation":
    """Every number of one layer of the seeded model over a text."""
    from attnviz.source import ModelSettings
    from attnviz.source_seeded import SeededSource

    if is_recording(text):
        raise AttnvizError("explain computes from a text, and a recording holds only scores and weights; give a text")
    if settings.model != ModelSettings.model:
        raise AttnvizError("explain works with the seeded model; leave --model out")
    return SeededSource(settings).compute(text, layer)


def record_both(
    text: str, other: str | None, settings: "ModelSettings", selection: Selection
) -> tuple["Recording", "Recording", str]:
    """A as given without the changes, B with them and A's weights, and what was changed in words."""
    if is_recording(text) or (other is not None and is_recording(other)):
        return record_each(text, other, settings, selection)
    from attnviz.source import ModelSettings, open_source, option

    if settings.model != ModelSettings.model:
        if other is None:
            raise AttnvizError("nothing to compare; --with-model MODEL or --with TEXT says what changes")
        source = open_source(settings)
        return source.record(text, selection), source.record(other, selection), "another text"
    from attnviz.source_seeded import SeededSource

    plain = {name: getattr(ModelSettings, name) for name in CHANGES}
    changed = [name for name in CHANGES if getattr(settings, name) != plain[name]]
    if not changed and other is None:
        raise AttnvizError(
            "nothing to compare; --causal, --scale, --temperature, --seed, --dropout or --with TEXT works"
        )
    before = SeededSource(replace(settings, **plain))
    after = SeededSource(settings, like=None if "seed" in changed else before)
    recording_a = before.record(text, selection)
    recording_b = after.record(text if other is None else other, selection)
    words = [option(name) + ("" if name == "causal" else f" {getattr(settings, name)}") for name in changed]
    return recording_a, recording_b, " ".join(words + ([] if other is None else ["another text"]))


def record_models(
    text: str, other: str | None, settings: "ModelSettings", model: str, selection: Selection
) -> tuple["Recording", "Recording", str]:
    """The recordings of two models, and what was changed in words."""
    if is_recording(text) or (other is not None and is_recording(other)):
        raise AttnvizError("--with-model records a text anew; with saved recordings leave it out")
    before = record(text, settings, selection)
    after = record(text if other is None else other, replace(settings, model=model), selection)
    return before, after, f"the change to {after.model}" + ("" if other is None else " and another text")


def record_each(
    text: str, other: str | None, settings: "ModelSettings", selection: Selection
) -> tuple["Recording", "Recording", str]:
    """The recordings of two texts of which at least one is a saved recording, and what was changed in words."""
    if other is None:
        raise AttnvizError(f"nothing to compare {text} with; a second recording after it works, or --with TEXT")
    return record(text, settings, selection), record(other, settings, selection), f"the change to {other}"


def parse_head(head: str) -> tuple[int, int]:
    """Layer and head of ``1`` (in layer 0) or ``0.1``.

    Raises:
        AttnvizError: for anything else.
    """
    selection = Selection.parse(heads=head)
    chosen = selection.pairs or tuple((0, number) for number in selection.heads or ())
    if len(chosen) != 1:
        raise AttnvizError(f"--head {head!r} is not one head; 1 or 0.1 (layer.head) works")
    return chosen[0]


def model_settings(input: Input, model: Model) -> "ModelSettings":
    """The settings that the options give."""
    from attnviz.source import ModelSettings

    return ModelSettings(tokenizer=input.tokenizer, context=input.context, **vars(model))


def report_options(
    selection: Selection, look: "ReportLook", output: Output, table: str | None = None, rank: Rank | None = None
) -> "ReportOptions":
    """The report's options, with the limits of the medium that it is drawn for."""
    from attnviz import api

    look = on_terminal(look) if output.output is None else look
    return api.report_options(medium(output), selection, look, table, **vars(rank or Rank()))


def report_look(look: Look) -> "ReportLook":
    """The look that the options give."""
    from attnviz.look import Look as ReportLook

    return ReportLook.parse(**vars(look))


def on_terminal(look: "ReportLook") -> "ReportLook":
    """The look on this terminal: its width and colours, and ASCII where it cannot write more."""
    from rich.console import Console

    console = Console()
    colors = {"truecolor": 2**24, "256": 256}.get(console.color_system or "", 0)
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "")
    return replace(
        look,
        width=max(console.width, 20),
        colors=0 if console.no_color or look.ascii else colors,
        ascii=look.ascii or encoding != "utf8",
    )


def read_input(input: Input) -> str:
    """The text that the options name: given, a file's, a sample's, standard input's, or the first sample."""
    from attnviz.files import decode_text, read_text
    from attnviz.samples import read_sample, samples

    given = [name for name in ("text", "file", "sample") if getattr(input, name) is not None]
    if len(given) > 1:
        raise AttnvizError(f"{' and '.join(given)} both give a text; one of them works")
    if len(input.file or ()) > 1:
        raise AttnvizError("several --file are several texts, which attnviz heads takes; one works here")
    if input.file:
        return refuse_blank(read_text(input.file[0]), input.tokenizer)
    if input.sample is not None:
        return read_sample(input.sample)
    if input.text not in (None, "-"):
        return refuse_blank(str(input.text), input.tokenizer)
    if input.text == "-" or is_piped():
        text = decode_text(sys.stdin.buffer.read(), "standard input").removesuffix("\n")
        return refuse_blank(text, input.tokenizer)
    first = next(iter(samples()))
    remark(f"no text given: using sample {first!r}, “{read_sample(first)}”")
    return read_sample(first)


def read_texts(input: Input, batch: Path | None) -> list[str]:
    """The texts that the options name: those of several files, the lines of one, or the one text."""
    from attnviz.files import read_text

    if batch is not None:
        return read_batch(batch, input)
    if len(input.file or ()) > 1 and input.text is None and input.sample is None:
        return [refuse_blank(read_text(path), input.tokenizer) for path in input.file or ()]
    return [read_input(input)]


def read_batch(path: Path, input: Input) -> list[str]:
    """The texts of a file, one a line; blank lines are left out."""
    from attnviz.files import read_text

    given = [name for name in ("text", "file", "sample") if getattr(input, name) is not None]
    if given:
        raise AttnvizError(f"{given[0]} and --batch both give a text; one of them works")
    texts = [line for line in read_text(path).splitlines() if line.strip()]
    if not texts:
        raise AttnvizError(f"no texts in {str(path)!r}; one text a line works")
    return texts


def refuse_blank(text: str, tokenizer: str) -> str:
    """The text, where it has anything that can be a token.

    Raises:
        AttnvizError: for no text at all, or white space where tokens are words.
    """
    if not text or (tokenizer == "word" and not text.strip()):
        raise AttnvizError(f"no tokens in {'white space' if text else 'an empty text'}; a text with a word in it works")
    return text


def is_piped() -> bool:
    """Whether standard input is a pipe or a file."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError, AttributeError):
        return False
    return stat.S_ISFIFO(mode) or (stat.S_ISREG(mode) and os.fstat(sys.stdin.fileno()).st_size > 0)


def is_recording(text: str) -> bool:
    """Whether the text is the path of a saved recording."""
    return text.endswith(".safetensors")


def refuse_output(output: Output) -> None:
    """Raises AttnvizError where the output cannot be written, before any work is done."""
    from attnviz.files import refuse_target

    medium(output)
    if output.output is not None:
        refuse_target(output.output, output.force)


def is_table(output: Output) -> bool:
    """Whether what is written is a table, and not a picture."""
    from attnviz.render import JSON, TERMINAL

    return medium(output) in (TERMINAL, JSON, ".csv")


def medium(output: Output) -> str:
    """The suffix of what is written: that of the file, or of what goes to standard output."""
    from attnviz.render import JSON, TERMINAL, suffix_of

    if output.output is None:
        return JSON if output.json else TERMINAL
    if output.json:
        raise AttnvizError(f"--json prints and -o {str(output.output)!r} writes a file; one of them works")
    return suffix_of(output.output)


def explained_suffix(output: Output) -> str:
    """The suffix of the file that an explanation is written to, or that of the terminal; refuses what cannot be."""
    from attnviz.files import refuse_target
    from attnviz.render_explain import TERMINAL, suffix_of

    if output.json:
        raise AttnvizError("explain prints no JSON; attnviz show --json prints the scores and weights")
    if output.output is None:
        return TERMINAL
    refuse_target(output.output, output.force)
    return suffix_of(output.output)


def recording_path(output: Output) -> Path:
    """Where a recording is to be written.

    Raises:
        AttnvizError: if no file of that kind is named, or it cannot be written.
    """
    from attnviz.files import SUFFIX, refuse_target

    if output.output is None or output.output.suffix.lower() != SUFFIX or output.json:
        raise AttnvizError(f"a recording is written to a file; -o run{SUFFIX} works")
    refuse_target(output.output, output.force)
    return output.output


def deliver(report: "Report", output: Output) -> None:
    """Writes the report to its file and the path to standard output, or the picture to standard output."""
    from attnviz.render import write as write_report

    deliver_file(output, partial(write_report, report, medium(output)))


def deliver_file(output: Output, write_to: Callable[[IO[bytes]], None]) -> None:
    """Has the file written and prints its path, or has standard output written."""
    from attnviz.files import atomic_file

    if output.output is None:
        sys.stdout.flush()
        write_to(sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    with atomic_file(output.output, output.force) as file:
        write_to(file)
    write(f"{output.output}\n".encode(errors="surrogateescape"))


def write(content: bytes) -> None:
    """Writes to standard output."""
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def remark(line: str) -> None:
    """Says a line on standard error."""
    print(f"attnviz: {line}", file=sys.stderr)


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


def one_line(message: str) -> str:
    """The message on one line, without control characters."""
    return " ".join("".join(character if character.isprintable() else " " for character in message).split())
