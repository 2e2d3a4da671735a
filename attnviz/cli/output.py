"""Writes the results of commands, and refuses before the work starts what could not be written after it."""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

from attnviz.base.errors import AttnvizError, choices, flag, or_list
from attnviz.base.printable import printable, remark
from attnviz.cli.options import TYPED, Output
from attnviz.render.formats import FILMS, FORMATS, TERMINAL, format_of, options_for_medium
from attnviz.render.formats import write as write_report

if TYPE_CHECKING:
    from attnviz.cli.subject import Subject
    from attnviz.report.picture.options import ReportOptions
    from attnviz.report.picture.report import Report

BINARY = (".png", ".pdf", ".pptx", ".npz", ".gif", ".apng")  # bytes that a terminal cannot show
PICKLED = (".pt", ".pth", ".bin", ".ckpt", ".pkl")  # suffixes of files that other programs save tensors in


def refuse_output(output: Output, writes: str = "picture", others: Sequence[str] = ()) -> None:
    """Raises AttnvizError if the command does not write the format that the options name, or cannot write the file.

    Args:
        output: the options.
        writes: the name of a file that a message proposes, without its suffix.
        others: the suffixes of what the command writes beside reports, such as films.
    """
    suffixes = [suffix for suffix, row in FORMATS.items() if row.has_atlas or writes == "picture"] + [*others]
    if output.file is not None:
        refuse_suffix(output.file, suffixes, writes)
    if output.suffix not in others and medium(output) not in suffixes:
        raise AttnvizError(f"this command does not write {medium(output)}; use {or_list(suffixes)}")
    _refuse_unwritable(output)


def medium(output: Output) -> str:
    """Returns the suffix of the format that is written."""
    return format_of(output.suffix or TERMINAL).suffix


def kind_of(output: Output) -> str:
    """Returns the kind of medium that is written, a key of `attnviz.render.formats.KINDS`."""
    return FORMATS[medium(output)].kind


def words_suffix(output: Output, subject: "Subject") -> str | None:
    """Returns the suffix of a file of the input's words, or ``words.json``; ``None`` if the file will hold no words.

    ``words.json`` holds words only if the input has a sound; else it holds the numbers of the maps.
    """
    from attnviz.cli.subject import Kind
    from attnviz.media.timed_words import WORD_SUFFIXES, WORDS_JSON, is_words_json

    if output.file is None or not is_words_json(output.file):
        return output.suffix if output.suffix in WORD_SUFFIXES else None
    if subject.kind is Kind.SOUND or subject.sound is not None:
        return WORDS_JSON
    from attnviz.metrics.alignment import is_aligned

    has_sound = subject.kind is Kind.RECORDING and any(map(is_aligned, subject.recording().maps))
    return WORDS_JSON if has_sound else None


def explanation_suffix(output: Output) -> str:
    """Returns the suffix of the format of an explanation; the terminal's if the options name no format."""
    from attnviz.explain.files import FORMATS, refuse_format

    if output.json:
        raise AttnvizError("explain prints no JSON; attnviz show --json prints the scores and weights")
    if output.file is not None:
        refuse_suffix(output.file, list(FORMATS), "notes")
    suffix = output.suffix or TERMINAL
    refuse_format(suffix)
    _refuse_unwritable(output)
    return suffix


def refuse_suffix(path: Path, suffixes: Sequence[str], writes: str) -> None:
    """Raises AttnvizError if a command does not write files with the suffix of a path.

    The message proposes a suffix, or another command that writes such files.
    """
    suffix = path.suffix.lower()
    if suffix in suffixes:
        return
    from attnviz.cli.subject import RECORDING

    usual_suffix = next(name for name in suffixes if name != ".txt")
    if suffix in FILMS:
        raise AttnvizError(
            f"{suffix} is a film, which attnviz show draws of several recordings, or of one with --style steps; "
            f"use {writes}{usual_suffix}"
        )
    if path.is_dir() or str(path).endswith(("/", "\\")):
        raise AttnvizError(f"{str(path)!r} is a folder; use -o {path / writes}{usual_suffix}")
    if not suffix:
        has_stem = path.name != "" and not path.name.startswith(".")
        proposed_path = path.with_name(path.name.strip(".") if has_stem else writes)
        raise AttnvizError(
            f"{str(path)!r} has no suffix, which picks the format; "
            f"use -o {proposed_path}{usual_suffix} ({or_list(suffixes)})"
        )
    if suffix in (RECORDING, *PICKLED):
        command = "" if RECORDING in suffixes else "attnviz show TEXT "
        recording = path.with_suffix(RECORDING)
        raise AttnvizError(f"this command does not write {suffix}; use {command}-o {recording} for a recording")
    raise AttnvizError(
        f"unknown suffix {suffix!r}; {choices(suffix, [name for name in suffixes if name not in FILMS])}"
    )


def _refuse_unwritable(output: Output) -> None:
    """Raises AttnvizError if the options name no one format, or a file that cannot be written."""
    from attnviz.base.files import refuse_closed_output, refuse_target

    if output.json and output.output is not None:
        raise AttnvizError(f"--json and -o {str(output.output)!r} both name the output; use one of them")
    if output.output is not None and output.file is None and not output.suffix:
        raise AttnvizError(f"-o {output.output} writes to standard output and names no format; use -o -.svg")
    if output.file is not None:
        refuse_target(output.file, output.force)
        return
    refuse_closed_output()
    if output.open:
        raise AttnvizError("--open opens the file that -o writes; add -o page.html")
    if output.suffix in BINARY and sys.stdout.isatty():
        raise AttnvizError(f"a terminal cannot show {output.suffix}; use -o picture{output.suffix}, or redirect with >")


def fit_options(options: "ReportOptions", output: Output) -> "ReportOptions":
    """Returns the options fitted to the medium of the output; a terminal adds its size and its colours."""
    from attnviz.render.terminal.lines import look_of_terminal
    from attnviz.report.words.notes import with_files_read

    look = with_files_read(options.look)  # what cannot be read is refused here, before a model runs
    look = look_of_terminal(look) if output.suffix is None else look
    return options_for_medium(replace(options, look=replace(look, for_command_line=True)), medium(output))


def with_remark_lines(options: "ReportOptions", lines: int) -> "ReportOptions":
    """Returns fitted options that leave lines of a terminal free for remarks above and below the picture."""
    if options.look.height is None:
        return options
    return replace(options, look=replace(options.look, height=max(options.look.height - lines, 1)))


def deliver(report: "Report", output: Output) -> None:
    """Writes the report to the output's file and prints the path; without a file, writes it to standard output.

    Prints a remark on typed options without effect in a terminal without colours.
    """
    from attnviz.report.picture.options import refuse_unread
    from attnviz.report.picture.report import DrawnReport

    kind = kind_of(output)
    refuse_unread(report, kind, TYPED.get())
    deliver_file(output, partial(write_report, report, medium(output)))
    if isinstance(report, DrawnReport) and report.advice:
        remark(report.advice)
    if kind == "terminal":
        from attnviz.render.terminal.draw import ineffective_options

        flags = [flag(name) for name in ineffective_options(report) if name in TYPED.get()]
        if flags:
            verb = "change" if len(flags) > 1 else "changes"
            remark(f"{' and '.join(flags)} {verb} colours, and there are none here; use -o picture.png")


def deliver_file(output: Output, write_to: Callable[[IO[bytes]], object]) -> None:
    """Writes a result to the output's file and prints the path; without a file, writes it to standard output."""
    from attnviz.base.files import output_file

    with output_file(output.file, output.force) as file:
        write_to(file)
    if output.file is not None:
        print_path(output.file)
    if output.file is not None and output.open:
        import typer

        if typer.launch(str(output.file.absolute())) != 0:
            remark(f"no program here opens {str(output.file)!r}; the file is written")


def print_path(path: Path) -> None:
    """Prints the path of the result; nothing if standard output is closed.

    A program gets the exact bytes, a terminal printable characters.
    """
    if sys.stdout is not None:
        write((printable(str(path)).encode() if sys.stdout.isatty() else os.fsencode(path)) + b"\n")


def write(content: bytes) -> None:
    """Writes the bytes to standard output."""
    from attnviz.base.files import standard_output

    with standard_output() as file:
        file.write(content)


def suggest_next(line: str) -> None:
    """Prints a suggestion for the next command, if standard error is a terminal."""
    if sys.stderr is not None and sys.stderr.isatty():
        remark(line)


def say_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Prints the warning of a library as a remark, which escapes control characters."""
    remark(str(message))
