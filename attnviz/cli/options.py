"""Builds the options of the commands from their declarations, in groups that are the panels of the help."""

import inspect
import re
from collections.abc import Callable, Container, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args

from typer import Argument, Context
from typer import Option as TyperOption

from attnviz.base.errors import PLACED, SETTINGS, VALUES_OF, AttnvizError, did_you_mean, flag, option, or_list
from attnviz.base.options import (
    DeclaredOption,
    OneOf,
    Option,
    check_options,
    declared_options,
    in_range,
    refuse_unmet_needs,
)
from attnviz.base.own_file import is_own_file
from attnviz.cli.defaults import converted_word, names_from_source, parse_settings, refuse_to_fetch, used_defaults
from attnviz.cli.help import ARGUMENTS_TYPED, SETTINGS_PANEL, TOPICS, ShortHelp, completer
from attnviz.models.reading.settings import ModelSettings
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import Rank, Reduction
from attnviz.text.selection import Grouping, Selection


def _refuse_unknown_step(name: str, step: str) -> None:
    """Raises AttnvizError if an explanation has no step of this name."""
    OneOf([*_steps()])(name, step)


def _refuse_unknown_metric(name: str, metric: str) -> None:
    """Raises AttnvizError if no number of an output is called so."""
    from attnviz.effects.effect_table import OUTPUTS

    if metric.startswith("logit:"):
        raise AttnvizError(
            f"{flag(name)} logit takes its token from {flag('token')}; write {flag('token', metric[6:])}"
        )
    OneOf([*OUTPUTS])(name, metric)


REPLACEMENTS = ("zero", "mean", "corrupt")  # of a head's output; any other value is a text


def _refuse_misspelled_replacement(name: str, value: str) -> None:
    """Raises AttnvizError for a word within about a letter of a named replacement, which would be read as a text."""
    guess = did_you_mean(value, REPLACEMENTS, cutoff=0.8)
    if guess and value not in REPLACEMENTS:
        raise AttnvizError(f"unknown {flag(name)} {value!r}; {guess}Choose {or_list(REPLACEMENTS)}, or a longer text")


def _steps() -> dict[str, str]:
    """Returns the names of the steps of an explanation, each with the first line of its docstring."""
    from attnviz.explain.explain import STEPS

    return {name: (inspect.getdoc(step) or "").partition("\n")[0] for name, step in STEPS.items()}


STANDARD_OUTPUT = re.compile(r"-(\.\w*)?")  # -.svg names a format too


@dataclass(frozen=True)
class Input:
    """The options that name the input: a text, a file, a sample, an image, a sound, and passages or labels for it."""

    text: Annotated[
        str | None,
        Option(
            "The text in quotes, sample:NAME for a sample text, - for standard input, or a file: a recording, arrays, "
            "a chat (.json), a server's answer, a picture (PNG, JPEG or WebP) or a sound (WAV, FLAC, OGG or MP3). "
            "Pictures, or the sound that says it, may stand beside a text.",
            brief="A text in quotes, a recording or a picture.",
        ),
    ] = None
    file: Annotated[
        list[Path] | None,
        Option(
            "Read the text from this UTF-8 file (heads and ablate take several).", brief="Read the text from this file."
        ),
    ] = None
    sample: Annotated[str | None, Option("Use the sample text of this name.")] = None
    passages: Annotated[
        str | None,
        Option("Put the texts of these files before the text: 'docs/*.txt'; --by passages makes each a unit."),
    ] = None
    image: Annotated[
        list[Path] | None,
        Option("Read this image (PNG, JPEG or WebP) with a vision model; with a text, may be repeated."),
    ] = None
    sound: Annotated[
        Path | None,
        Option("Read this sound (WAV, FLAC, OGG or MP3) with a speech model; TEXT may give the words said in it."),
    ] = None
    labels: Annotated[Path | None, Option("Label the tokens of arrays by the lines of this file.")] = None


@dataclass(frozen=True)
class Output:
    """The destination of the result: the file after ``-o``, or standard output."""

    output: Annotated[
        Path | None,
        Option(
            "Write a file in the format of its suffix; -.svg writes SVG to standard output.",
            brief="Write a file; its suffix picks the format: .png, .html …",
        ),
    ] = None
    force: Annotated[bool, Option("Replace the file if it exists.", needs=("output", "picture.png"))] = False
    open: Annotated[bool, Option("Open the written file.")] = False
    json: Annotated[bool, Option("Print the exact numbers as JSON.")] = False

    @property
    def file(self) -> Path | None:
        """The file to write, or ``None`` for standard output."""
        return None if self.output is None or STANDARD_OUTPUT.fullmatch(str(self.output)) else self.output

    @property
    def suffix(self) -> str | None:
        """The suffix of the format, such as ``.svg``; "" if the file has none, ``None`` if no option names a format."""
        if self.json:
            return ".json"
        return None if self.output is None else self.output.suffix.lower()


@dataclass(frozen=True)
class Removal:
    """The options that choose what is measured without heads, which are removed, how, and beside which controls."""

    metric: Annotated[
        str | None,
        Option(
            "Measure loss, kl, accuracy, cosine, distance or logit (default: the logit of --token, or of the answer "
            "for a picture, else loss if the model predicts tokens, else cosine).",
            _refuse_unknown_metric,
            brief="Measure loss, kl, accuracy, cosine, distance or logit.",
        ),
    ] = None
    token: Annotated[
        str | None,
        Option("Explain this token instead of the most probable one; ablate measures its logit."),
    ] = None
    versus: Annotated[
        str | None,
        Option("Explain what speaks for the token and against this one: the difference of their logits."),
    ] = None
    replace_by: Annotated[
        str,
        Option(
            "Replace a head's output by zero, its mean over all positions and texts, its output on a TEXT with as many "
            "tokens, or corrupt: on the column corrupt of the --batch.",
            _refuse_misspelled_replacement,
        ),
    ] = "zero"
    pairs: Annotated[bool, Option("Also remove heads two at a time, to find heads that back each other up.")] = False
    sets: Annotated[
        str | None,
        Option("Remove these heads together: 1.0+1.1, or a whole layer: 0; separate sets by commas."),
    ] = None
    top: Annotated[
        int | None,
        Option(
            "Remove this many heads one after another, each time the head that matters most. In why with --batch: "
            "choose the heads whose removal loses most on one half of the prompts, and test them on the other.",
            in_range(1, 100_000),
        ),
    ] = None
    controls: Annotated[
        int | None,
        Option(
            "Compare with this many random sets of as many other heads, of the same layers if these have enough "
            "(default: 4 in why, which also hides as many other tokens; at least 100 with its --batch; 20 for the "
            "--sets of ablate).",
            in_range(0, 10_000),
            brief="Compare with this many random sets of as many heads.",
        ),
    ] = None

    def __post_init__(self) -> None:
        check_options(self)


Batch = Annotated[
    Path | None,
    Option(
        "Read one text from each line of this file, or from the column text of a .csv, .tsv or .jsonl.", panel="Input"
    ),
]
Other = Annotated[str | None, Option("Compare with this text or saved recording.", panel="Input")]
Second = Annotated[
    str | None, Option("A second recording, survey or file of effects, to compare with the first.", panel="Input")
]
WithModel = Annotated[str | None, Option("Compare with this model.", panel="Model")]
At = Annotated[
    str | None,
    Option("Open this place: head=3.4&query=it, or the end of a page's link.", panel="Select"),
]
SaveHalf = Annotated[
    bool,
    Option("In a recording, save queries and keys of a long text in bfloat16, at half the size.", panel="Output"),
]
OwnMetrics = Annotated[
    list[str] | None,
    Option(
        "Add a metric of your own, or with --types a type of heads: a function of a Python file, mine.py:kurtosis; may "
        "be repeated. It runs that file.",
        panel="Sort",
    ),
]
EffectsFile = Annotated[
    Path | None,
    Option("Add effects from attnviz ablate -o effects.json, to sort and filter heads by.", panel="Input"),
]
ReferenceFile = Annotated[
    Path | None,
    Option(
        "Compare heads with a file: alignment with words and their times (WebVTT, or Whisper's JSON), or contacts with "
        "known pairs of tokens (NAME.pairs, two numbers on each line).",
        panel="Input",
    ),
]
KnownTypes = Annotated[
    bool,
    Option(
        "List known types of heads instead, such as induction: each is tested on texts made for it, against controls, "
        "at a level of 1 % for all heads together (Bonferroni).",
        panel="Select",
        brief="Test for known types, such as induction, by a control.",
    ),
]
Head = Annotated[
    str,
    Option(
        "Explain this head: 1, or layer.head, such as 0.1.",
        panel="Select",
        brief="Explain this head: 1, or layer.head, such as 0.1.",
    ),
]
Step = Annotated[
    str | None,
    Option(
        "Show only this step, such as scores.",
        _refuse_unknown_step,
        panel="Select",
        brief="Show only this step, such as scores.",
        names=_steps,
    ),
]
AllSteps = Annotated[
    bool, Option("Show the numbers of every step, even if they are longer than the screen.", panel="Select")
]
Recordings = Annotated[
    list[str] | None, Option("More saved recordings, which -o film.gif shows one after another.", panel="Input")
]
Topic = Annotated[
    str | None,
    Option(
        "Only samples, for sample:NAME; devices, for --device; or config, the defaults that you set.",
        OneOf(TOPICS, noun_of=str),
        brief="Only samples, devices or config.",
    ),
]
Corpus = Annotated[
    list[str] | None,
    Option(
        "Files of texts (.txt .jsonl .csv .tsv .parquet .arrow), folders of them or of pictures, quoted patterns, a "
        "dataset's name, or - for standard input.",
        brief="Files of texts (.txt .jsonl .csv …), or a folder; or pictures.",
    ),
]
Column = Annotated[
    str | None,
    Option(
        "Read this column of a table (default: the only one, or text).",
        panel="Input",
        brief="Read this column of a table.",
    ),
]
TokenLimit = Annotated[
    str | None,
    Option(
        "Stop after this many tokens, such as 500k or 10M.",
        panel="Input",
        brief="Stop after this many tokens, such as 10M.",
    ),
]
Window = Annotated[
    int | None,
    Option(
        "Cut longer texts into windows of this many tokens (default: skip them).", in_range(2, 2**20), panel="Input"
    ),
]
TokenClass = Annotated[
    list[str] | None,
    Option(
        "Sum the weight on tokens that a regular expression matches: years=[0-9]{4}; may be repeated.",
        panel="Select",
    ),
]
Resume = Annotated[
    bool,
    Option("Continue an unfinished survey.", panel="Output", brief="Continue an unfinished survey."),
]
Pair = Annotated[
    tuple[str, str] | None,
    Option(
        "Show how each feature adds to the score of this query and key.",
        panel="Select",
    ),
]


SET = DeclaredOption(
    Option(
        "Set one of these rarer options, such as --set num-heads=8; may be repeated.",
        panel=SETTINGS_PANEL,
        brief="Set a rarer option that --help lists: num-heads=8, …",
    ),
    list[str] | None,
    None,
)

# For each group: the function that makes its value from its options, and their panel in the help.
GROUPS: dict[type, tuple[Callable[..., object], str]] = {
    Input: (Input, "Input"),
    ModelSettings: (ModelSettings, "Model"),
    Selection: (Selection.parse, "Select"),
    Reduction: (Reduction, "Select"),
    Grouping: (Grouping, "Words"),
    Removal: (Removal, "Select"),
    Rank: (Rank, "Sort"),
    Look: (Look, "Look"),
    Output: (Output, "Output"),
}
ARGUMENTS = ("text", "corpus", "topic")  # positional
ALIASES = {"layers": "layer", "heads": "head", "head": "heads"}  # other spellings: --layer for --layers
# Parameters whose option has another name.
NAMES: dict[str, tuple[str, ...]] = {"output": ("--output", "-o"), "other": ("--with",), "assignments": ("--set",)}


# The names of the options that the user typed: what is drawn late, in other files, refuses an option that it does not
# read, but not its default.
TYPED: ContextVar[tuple[str, ...]] = ContextVar("TYPED", default=())


# Why commands do not list their options as plain Typer does: a parameter of Typer is one option, and a group of options
# has no parameter. Eight commands would repeat up to 43 options each, and check, default and join them again; and the
# same declarations serve the Python API, the inspector and the pictures, which know no Typer. So a command takes
# groups, and this function writes the signature that Typer reads: help, completion and usage errors are Typer's own.
def expand_options(command: Callable[..., None]) -> Callable[..., None]:
    """Returns a function for typer that runs a command, with one parameter for each option of the command, and ``-h``.

    A parameter of the command is an option, or a group of options: the group's type, or ``Annotated[type, names]`` for
    some of its options, whose defaults are those of the parameter's default, if it has one. The attribute ``declared``
    of the returned function holds all options by name.
    """
    single_options = declared_options(command)
    groups: dict[str, _OptionGroup] = {}
    declarations: dict[str, DeclaredOption] = {}
    panels: dict[str, str] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        if name in single_options:
            declarations[name] = single_options[name]
        else:
            groups[name] = _group(parameter.annotation, parameter.default)
            declarations |= groups[name].declared
            panels |= dict.fromkeys(groups[name].declared, groups[name].panel)
    settings = {name: declaration for name, declaration in declarations.items() if name in SETTINGS}
    own_options = {
        name: _with_inner_values(name, declarations)
        for name in declarations
        if name not in (*SETTINGS, *VALUES_OF, *PLACED, "second", "recordings")  # the last ones are words of TEXT
    }
    own_options |= {"assignments": SET} if settings else {}
    parameters = [_parameter(name, declaration, panels.get(name)) for name, declaration in own_options.items()]

    def expanded(command_line: Context, brief: bool = False, **parsed: Any) -> None:
        """Checks the values of all options, joins those of each group, and runs ``command`` with them."""
        # What was typed: words in the place of TEXT, options, and settings after --set.
        placed_words: dict[str, Any] = {}
        typed_words = parsed.pop("text", None)
        if typed_words:
            from attnviz.cli.subject import place_words

            placed_words, extra_words = place_words(typed_words, declarations)
            if extra_words:
                from attnviz.cli.suggestions import extra_words_line

                arguments = command_line.meta[ARGUMENTS_TYPED]
                line = extra_words_line(command_line.command_path, typed_words, extra_words, arguments)
                command_line.fail(line)
        typed_settings = parse_settings(parsed.pop("assignments", None) or (), settings)
        typed_options = {name: parsed[name] for name in names_from_source(command_line, parsed, "COMMANDLINE")}
        typed, host_values = _split_values(placed_words | typed_options | typed_settings, declarations, own_options)

        # The value of each option: as typed, else the user's default, else the option's own.
        defaults = command_line.default_map or {}
        default_settings = {
            name: defaults[name] for name in defaults if name in declarations and name not in own_options
        }
        default_names = [*names_from_source(command_line, parsed, "DEFAULT_MAP"), *default_settings]
        own_defaults = {name: declared.default for name, declared in declarations.items()}
        values = used_defaults(own_defaults | parsed | default_settings, default_names) | typed | host_values

        # Before anything is read: values that no option takes, and options that would change nothing.
        for name, single_option in single_options.items():
            if single_option.option.check is not None and values.get(name) is not None:
                single_option.option.check(name, values[name])
        _refuse_ignored(tuple(typed), declarations, values)
        TYPED.set(tuple(typed))
        _allow_own_models(typed)
        if "model" in values and _saved_input(values) is None:
            refuse_to_fetch(command_line, values["model"])

        group_values = {
            name: group.make(**{option_name: values[option_name] for option_name in group.declared})
            for name, group in groups.items()
        }
        command(**{name: values[name] for name in single_options}, **group_values)

    parameters.append(inspect.Parameter("command_line", inspect.Parameter.KEYWORD_ONLY, annotation=Context))
    parameters.append(inspect.Parameter("brief", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=ShortHelp))
    expanded.__name__, expanded.__doc__ = command.__name__, command.__doc__
    expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    expanded.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    expanded.declared = settings | own_options  # type: ignore[attr-defined]  # for the help
    return expanded


def _allow_own_models(typed: Mapping[str, Any]) -> None:
    """Lets the functions of Python files run that the command line names as models, and no others."""
    for name in {"model", "with_model"} & typed.keys():
        if is_own_file(typed[name]):
            from attnviz.models.sources import allow_own_model

            allow_own_model(typed[name])


def refuse_typed(allowed: Container[str], reason: str) -> None:
    """Raises AttnvizError for the first typed option that is not allowed; its name stands before the reason."""
    for name in TYPED.get():
        if name not in allowed:
            raise AttnvizError(f"{name.upper() if name in ARGUMENTS else option(name)} {reason}")


def _refuse_ignored(
    typed_options: Sequence[str], declarations: Mapping[str, DeclaredOption], values: Mapping[str, Any]
) -> None:
    """Raises AttnvizError if a typed option has no effect: without another one, on a saved file, or in the medium."""
    refuse_unmet_needs(typed_options, declarations, {name for name in values if values[name] is not None})
    if "generate" in typed_options and values["generate"] == 0:
        raise AttnvizError(f"{option('generate', 0)} generates no token; give 1 or more, or leave it out")
    from attnviz.cli.subject import is_recording

    saved_file = _saved_input(values)
    settings = declared_options(ModelSettings)
    typed_settings = [name for name in typed_options if settings.get(name) is declarations[name]]
    if "model" in typed_options and is_recording(values["model"]):
        raise AttnvizError(
            f"{option('model', values['model'])} is a recording, which needs no model; attnviz show {values['model']} "
            "draws it"
        )
    if saved_file is not None and typed_settings:
        raise AttnvizError(
            f"{option(typed_settings[0])} does not apply to a saved file: {saved_file} holds what was computed; "
            "leave it out, or run the model again with it"
        )
    if typed_settings:
        from attnviz.models.sources import refuse_unused_names

        refuse_unused_names(typed_settings, values["model"])
    if "output" in values:
        from attnviz.render.formats import FORMATS, TERMINAL, refuse_ineffective

        output = Output(**{name: values[name] for name in declared_options(Output) if name in values})
        names_with_media = [name for name in typed_options if declarations[name].option.media]
        suffix = output.suffix or TERMINAL
        refuse_ineffective(names_with_media, suffix)
        if "style" in values and suffix in FORMATS:
            from attnviz.report.picture.options import STEPS, picture_of_style, refuse_unread_of

            picture = STEPS if values.get("table") == STEPS else picture_of_style(values["style"], values.get("query"))
            refuse_unread_of(picture, FORMATS[suffix].kind, typed_options)
        if "force" in typed_options and output.file is None:
            raise AttnvizError(f"{option('force')} replaces a file, and -o {output.output} writes none; leave it out")


def _saved_input(values: Mapping[str, Any]) -> str | None:
    """Returns the first input if all inputs are saved recordings or surveys and no model runs; else ``None``."""
    from attnviz.cli.subject import is_saved

    if any(values.get(name) for name in ("file", "sample", "batch", "with_model")) or values.get("text") is None:
        return None
    arguments = [values[name] for name in ("text", "second", "other") if values.get(name) is not None]
    arguments += values.get("recordings") or ()
    return arguments[0] if all(map(is_saved, arguments)) else None


class _OptionGroup(NamedTuple):
    """A group of options: the function that makes its value, its options by name, and their panel in the help."""

    make: Callable[..., object]
    declared: dict[str, DeclaredOption]
    panel: str


@cache
def _group(annotation: Any, default: Any) -> _OptionGroup:
    """Returns the options of a group, or those that the annotation of a part of it names, with a command's defaults."""
    is_part = bool(get_args(annotation))
    make, panel = GROUPS[annotation.__origin__ if is_part else annotation]
    options = declared_options(make)
    names = annotation.__metadata__[0] if is_part else options
    chosen = {name: options[name] for name in names}
    if default is not inspect.Parameter.empty:
        chosen = {name: declared._replace(default=getattr(default, name)) for name, declared in chosen.items()}
    return _OptionGroup(make, chosen, panel)


def _with_inner_values(name: str, declarations: Mapping[str, DeclaredOption]) -> DeclaredOption:
    """Returns an option with the help and the names of the options that are values of it."""
    declared = declarations[name]
    inner_options = [
        (declarations[inner].option, pattern)
        for inner, (host, pattern, _) in VALUES_OF.items()
        if host == name and inner in declarations and "{}" in pattern
    ]
    if not inner_options:
        return declared

    def names() -> dict[str, str]:
        names_by_pattern = [(pattern, option.known_names() or ["…"]) for option, pattern in inner_options]
        inner_names = [pattern.format(value) for pattern, values in names_by_pattern for value in values]
        return {**declared.option.known_names(), **dict.fromkeys(inner_names, "")}

    sentences = [declared.option.help, *(option.help for option, _ in inner_options)]
    return declared._replace(option=replace(declared.option, help=" ".join(sentences), names=names))


def _split_values(
    typed: Mapping[str, Any], declarations: Mapping[str, DeclaredOption], own_options: Mapping[str, DeclaredOption]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns what was typed, with ``rollout:0.3`` as the value of the option that Python has for it, and the value
    that the option before it, here ``reduce``, has then.
    """
    split, host_values = dict[str, Any](), dict[str, Any]()
    for name, value in typed.items():
        for inner, (host, pattern, host_value) in VALUES_OF.items():
            prefix, slot, _ = pattern.partition("{}")
            if host != name or inner not in declarations or not slot:
                continue
            text = value.removeprefix(prefix)
            if value == prefix + text and (prefix or text in declarations[inner].option.known_names()):
                split[inner] = converted_word(inner, text, declarations[inner])
                host_values[name] = host_value or declarations[name].default
                break
        else:
            split[name] = value
    for host in {row.host for row in VALUES_OF.values()} & set(split):
        check = own_options[host].option.check
        if isinstance(check, OneOf):
            replace(check, known=[*own_options[host].option.known_names()])(host, split[host])
    return split, host_values


def _parameter(name: str, declared: DeclaredOption, panel: str | None = None) -> inspect.Parameter:
    """Returns the typer parameter of an option: a positional argument if ``ARGUMENTS`` has its name, else an option."""
    declaration = declared.option
    if name == "text":
        declared = declared._replace(type=list[str] | None)

    spellings = NAMES.get(name, ())  # of an option; typer derives those of most from the name
    if declared.type == bool | None:  # a flag and its opposite; neither leaves the choice open
        spellings = (f"{flag(name)}/{flag(name, value=False)}",)
    elif declared.default is False:  # typer would add --no-name
        spellings = (flag(name),)
    elif name in ALIASES:
        spellings = (flag(name), flag(ALIASES[name]))
    info = (
        Argument(
            help=declaration.help,
            metavar=name.upper(),
            rich_help_panel="Input",
            autocompletion=completer(name, declaration),
        )
        if name in ARGUMENTS
        else TyperOption(
            *spellings,
            help=declaration.help,
            rich_help_panel=declaration.panel or panel,
            autocompletion=completer(name, declaration),
        )
    )
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=declared.default, annotation=Annotated[declared.type, info]
    )
