"""The options of the command line: derived from where each is declared, in groups that are the panels of the help."""

import inspect
from collections import ChainMap
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args

from typer import Argument, Context
from typer import Option as TyperOption

from attnviz.base.errors import AttnvizError, flag, option
from attnviz.base.options import Declared, Option, declared_options, refuse_alone, within
from attnviz.cli.completion import completer
from attnviz.cli.defaults import refuse_to_fetch, without_unused
from attnviz.cli.help import Brief
from attnviz.models.reading.settings import ModelSettings
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import All, Axes, Of, Rank, Reduction, ReportOptions, Table
from attnviz.text.selection import Grouping, Selection


def _samples() -> dict[str, str]:
    from attnviz.text.samples import samples

    return dict.fromkeys(samples(), "")


def _suffixes() -> dict[str, str]:
    from attnviz.render.formats import FORMATS

    return {suffix.removeprefix("."): "" for suffix in FORMATS}


def _steps() -> dict[str, str]:
    from attnviz.explain.explain import STEPS

    return {name: (inspect.getdoc(step) or "").partition("\n")[0] for name, step in STEPS.items()}


STANDARD_OUTPUT = Path("-")


@dataclass(frozen=True)
class Input:
    """Where the text comes from."""

    text: Annotated[
        str | None,
        Option(
            "The text in quotes, a saved recording, or - for standard input.",
            brief="In quotes; or a saved recording, or - for standard input.",
        ),
    ] = None
    file: Annotated[
        list[Path] | None,
        Option("Read the text from this UTF-8 file; heads takes several.", brief="Read the text from this file."),
    ] = None
    sample: Annotated[str | None, Option("Use a sample text by its name (see: attnviz samples).", names=_samples)] = (
        None
    )
    tokens: Annotated[Path | None, Option("Label the tokens of arrays by the lines of this file.")] = None


@dataclass(frozen=True)
class Output:
    """Where it goes: a file that ``-o`` names, or standard output."""

    output: Annotated[
        Path | None,
        Option(
            "Write a file; its suffix picks the format. - is standard output.",
            brief="Write a file; its suffix picks the format: .png .svg .html …",
        ),
    ] = None
    format: Annotated[
        str | None, Option("Write this format, as svg, whatever the file is called.", names=_suffixes)
    ] = None
    force: Annotated[bool, Option("Replace the file where it exists.", needs=("output", "picture.png"))] = False
    open: Annotated[
        bool, Option("Open the written file.", brief="Open the written file, as a page in the browser.")
    ] = False
    json: Annotated[bool, Option("Print the exact numbers as JSON.")] = False

    @property
    def file(self) -> Path | None:
        """The file, or ``None`` for standard output."""
        return None if self.output == STANDARD_OUTPUT else self.output

    @property
    def suffix(self) -> str | None:
        """What the format is called, as ``.svg``, where an option says."""
        if self.format is not None:
            return f".{self.format.lower().removeprefix('.')}"
        return ".json" if self.json else self.file.suffix.lower() if self.file is not None else None


Batch = Annotated[Path | None, Option("Take each line of this file as a text.", panel="Input")]
Other = Annotated[str | None, Option("Compare with this text, or this saved recording.", panel="Input")]
Second = Annotated[str | None, Option("A recording, or effects, to compare the first with.", panel="Input")]
WithModel = Annotated[str | None, Option("Compare with this model.", panel="Model")]
At = Annotated[
    str | None,
    Option("Begin at this place, as head=3.4&query=it, or the end of a page's link.", panel="Select"),
]
Half = Annotated[bool, Option("Hold the factors of a long text in bfloat16.", panel="Output")]
Values = Annotated[bool, Option("Keep what each key moves too, for --of contributions.", panel="Output")]
By = Annotated[
    str,
    Option(
        "Replace a head's output by zero, its mean over the positions, or what it gives on this text.", panel="Select"
    ),
]
Metric = Annotated[
    str | None,
    Option(
        "What is measured: loss, kl, accuracy, cosine, distance or logit:TOKEN; else the loss where tokens are "
        "predicted, or the cosine.",
        panel="Select",
        brief="What is measured: loss, kl, accuracy, cosine, distance, logit:TOKEN.",
    ),
]
EffectsFile = Annotated[
    Path | None,
    Option("Add the effects that attnviz ablate -o effects.json wrote, to sort and filter by too.", panel="Input"),
]
Logits = Annotated[
    str | None,
    Option(
        "Say what each head, each key of it and every other part adds to the logit of this token, after the last of "
        "--queries.",
        panel="Look",
    ),
]
Pairs = Annotated[bool, Option("Remove every two of the heads too: which back each other up.", panel="Select")]
Sets = Annotated[
    str | None, Option("Remove these together: 1.0+1.1, or layers as 0; several with commas.", panel="Select")
]
MostNeeded = Annotated[
    int | None, Option("Remove one head after the other, so many: the one that then matters most.", panel="Select")
]
Head = Annotated[
    str,
    Option(
        "The head that is shown, as 1, or layer.head as 0.1.",
        panel="Select",
        brief="The head, as 1, or layer.head as 0.1.",
    ),
]
Step = Annotated[
    str | None,
    Option("Show this step alone, as scores.", panel="Select", brief="Show this step alone, as scores.", names=_steps),
]
Whole = Annotated[
    bool, Option("Tell every step with its numbers, where a screen holds only what each does.", panel="Select")
]
Corpus = Annotated[
    list[str] | None,
    Option(
        "Files of texts (.txt .jsonl .csv .tsv .parquet .arrow), folders, patterns in quotes, a dataset's name, or -.",
        brief="Files of texts (.txt .jsonl .csv .tsv .parquet), or folders.",
    ),
]
Column = Annotated[
    str | None,
    Option(
        "The column of a table that is read, else text.", panel="Input", brief="The column of a table that is read."
    ),
]
TokenLimit = Annotated[
    str | None,
    Option("End after so many tokens, as 500k or 10M.", panel="Input", brief="End after so many tokens, as 10M."),
]
Window = Annotated[
    int | None,
    Option("Cut longer texts into windows of so many tokens, else they are left out.", within(2, 2**20), panel="Input"),
]
TokenClass = Annotated[
    list[str] | None,
    Option(
        "Count the weight on what a regular expression matches, as years=[0-9]{4}; may be repeated.", panel="Select"
    ),
]
Resume = Annotated[
    bool,
    Option("Go on with a survey that was not finished.", panel="Output", brief="Go on with one that was not finished."),
]
Pair = Annotated[
    tuple[str, str] | None,
    Option(
        "Tell the score of this query and this key by feature.",
        panel="Select",
    ),
]


@dataclass(frozen=True)
class Drawn:
    """Which numbers of a subject are drawn, and how many of its heads."""

    table: Table = None
    all: All = False
    of: Of = "weights"
    logits: Logits = None
    axes: Axes = None

    def report_options(
        self, rank: Rank, reduction: Reduction, selection: Selection, words: Grouping, look: Look
    ) -> ReportOptions:
        """The options of a report of them."""
        return ReportOptions(
            **vars(rank),
            **vars(reduction),
            selection=selection,
            grouping=words,
            table=self.table,
            all=self.all,
            of=self.of,
            axes=self.axes,
            look=look,
        )


# What makes the value of each group from its options, and the panel that they have in the help.
GROUPS: dict[type, tuple[Callable[..., object], str]] = {
    Input: (Input, "Input"),
    ModelSettings: (ModelSettings, "Model"),
    Selection: (Selection.parse, "Select"),
    Reduction: (Reduction, "Select"),
    Grouping: (Grouping, "Words"),
    Rank: (Rank, "Sort"),
    Look: (Look, "Look"),
    Output: (Output, "Output"),
    Drawn: (Drawn, "Look"),
}
ARGUMENTS = ("text", "second", "corpus")  # given without a name before them
ALIASES = {"layers": "layer", "heads": "head", "head": "heads"}  # meant by them as well
NAMES = {"output": ("--output", "-o"), "other": ("--with",)}  # where the parameter is called otherwise


TYPED: ContextVar[tuple[str, ...]] = ContextVar("TYPED", default=())  # the options of the command that runs


def spread_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with one parameter for every option of its groups, as typer reads parameters, and ``-h``.

    A parameter of the command is an option itself, or a group: its type, or ``Annotated[type, names]`` of those of its
    options that the command takes. The attribute ``declared`` of what is returned holds all of them by name.
    """
    singles = declared_options(command)
    taken = inspect.signature(command).parameters.values()
    groups = {each.name: _group(each.annotation) for each in taken if each.name not in singles}
    parameters = [
        parameter
        for each in taken
        for parameter in (
            groups[each.name].parameters if each.name in groups else [_parameter(each.name, singles[each.name])]
        )
    ]

    def spread(parsed: Context, brief: bool = False, **values: Any) -> None:
        values = without_unused(parsed, values)
        given = given_names(parsed, values)
        refuse_ignored(given, declared, values)
        TYPED.set(tuple(given))
        if "model" in values and _recording_alone(values) is None:
            refuse_to_fetch(parsed, values["model"])
        built = {
            name: group.make(**{each.name: values.pop(each.name) for each in group.parameters})
            for name, group in groups.items()
        }
        command(**values, **built)

    parameters.append(inspect.Parameter("parsed", inspect.Parameter.KEYWORD_ONLY, annotation=Context))
    parameters.append(inspect.Parameter("brief", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Brief))
    spread.__name__, spread.__doc__ = command.__name__, command.__doc__
    spread.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    spread.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    declared = dict(ChainMap(singles, *(group.declared for group in groups.values())))
    spread.declared = declared  # type: ignore[attr-defined]
    return spread


def given_names(parsed: Context, values: Mapping[str, Any]) -> list[str]:
    """The options that were typed, as against defaults."""
    return [name for name in values if (source := parsed.get_parameter_source(name)) and source.name == "COMMANDLINE"]


def refuse_ignored(given: list[str], declared: Mapping[str, Declared], values: Mapping[str, Any]) -> None:
    """Raises AttnvizError where an option was typed that the input, the medium or the other options make nothing of."""
    refuse_alone(given, declared, {name for name in values if values[name] is not None})
    if (recording := _recording_alone(values)) is not None:
        settings = declared_options(ModelSettings)
        if unused := next((name for name in given if name in settings), None):
            raise AttnvizError(
                f"{option(unused)} means nothing to a recording, and {recording} holds what was computed; "
                "leave it out, or record anew with it"
            )
    if "output" in values:
        from attnviz.render.formats import TERMINAL, refuse_unseen

        refuse_unseen(
            [name for name in given if declared[name].option.media],
            Output(**{each: values[each] for each in declared_options(Output) if each in values}).suffix or TERMINAL,
        )


def _recording_alone(values: Mapping[str, Any]) -> str | None:
    """The recording that is all that a command is given; ``None`` where there is a text too, or nothing."""
    from attnviz.cli.subject import is_saved

    texts = [values.get(name) for name in ("file", "sample", "batch", "with_model")]
    recordings = [value for name in ("text", "second", "other") if (value := values.get(name)) is not None]
    alone = not any(texts) and values.get("text") is not None and all(map(is_saved, recordings))
    return recordings[0] if alone else None


class OptionGroup(NamedTuple):
    """What makes one value of a command, the options that it is made of, and the parameters for them."""

    make: Callable[..., object]
    declared: dict[str, Declared]
    parameters: list[inspect.Parameter]


@cache
def _group(annotation: Any) -> OptionGroup:
    kind, *names = (annotation.__origin__, *annotation.__metadata__[0]) if get_args(annotation) else (annotation,)
    make, panel = GROUPS[kind]
    options = declared_options(make)
    chosen = {name: options[name] for name in names or options}
    return OptionGroup(make, chosen, [_parameter(name, declared, panel) for name, declared in chosen.items()])


def _parameter(name: str, declared: Declared, panel: str | None = None) -> inspect.Parameter:
    said = declared.option
    info = (
        Argument(help=said.help, metavar=name.upper(), rich_help_panel="Input")
        if name in ARGUMENTS
        else TyperOption(
            *_names(name, declared),
            help=said.help,
            rich_help_panel=said.panel or panel,
            autocompletion=completer(name, said),
        )
    )
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=declared.default, annotation=Annotated[declared.type, info]
    )


def _names(name: str, declared: Declared) -> tuple[str, ...]:
    """How the option is written, where typer would not write it so."""
    if declared.type == bool | None:
        return (f"{flag(name)}/{flag(name, False)}",)
    names = NAMES.get(name, (flag(name),) if declared.default is False else ())
    return names or ((flag(name), flag(ALIASES[name])) if name in ALIASES else ())
