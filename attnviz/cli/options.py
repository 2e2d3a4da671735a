"""The options of the command line: each declared once, in groups that are the panels of the help."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from typer import Argument, Option
from typer.models import OptionInfo

from attnviz.models.settings import ModelSettings


@dataclass(frozen=True)
class Input:
    """Where the text comes from, and how it is cut into tokens."""

    text: Annotated[
        str | None, Argument(help="The text, a saved recording, or - for standard input.", show_default=False)
    ] = None
    file: Annotated[
        list[Path] | None,
        Option(help="Read the text from this UTF-8 file; heads takes several.", show_default=False),
    ] = None
    sample: Annotated[
        str | None, Option(help="Use a sample text by its name (see: attnviz samples).", show_default=False)
    ] = None
    context: Annotated[
        str | None, Option(help="Attend to this text instead (cross-attention): keys and values.", show_default=False)
    ] = ModelSettings.context
    tokenizer: Annotated[str, Option(help="word, char, byte, or the path of a tokenizer.json.")] = (
        ModelSettings.tokenizer
    )


@dataclass(frozen=True)
class Model:
    """What attends to the text."""

    model: Annotated[
        str,
        Option(help="seeded (untrained), trained (small), the folder of a Hugging Face model, or its name on the hub."),
    ] = ModelSettings.model
    attention: Annotated[
        str | None, Option(help="Of an encoder-decoder: encoder, decoder or cross.", show_default=False)
    ] = ModelSettings.attention
    pair: Annotated[
        str | None, Option(help="A second text beside the first, as a pair for BERT.", show_default=False)
    ] = ModelSettings.pair
    chat: Annotated[bool, Option("--chat", help="Set the text in the model's chat template.")] = ModelSettings.chat
    generate: Annotated[int, Option(help="Let the model write this many tokens first.")] = ModelSettings.generate
    device_map: Annotated[
        str | None, Option(help="auto spreads a large model over devices (accelerate).", show_default=False)
    ] = ModelSettings.device_map
    num_heads: Annotated[int, Option(help="Attention heads a layer.")] = ModelSettings.num_heads
    embed_dim: Annotated[int, Option(help="Features a token; divisible by --num-heads.")] = ModelSettings.embed_dim
    num_layers: Annotated[int, Option(help="Layers, each with a residual connection.")] = ModelSettings.num_layers
    qk_dim: Annotated[
        int | None, Option(help="Width of a query and a key in each head, else --embed-dim / --num-heads.")
    ] = ModelSettings.qk_dim
    value_dim: Annotated[int | None, Option(help="Width of a value in each head, else the same.")] = (
        ModelSettings.value_dim
    )
    causal: Annotated[
        bool, Option("--causal", help="Let a query see only keys up to its own.", rich_help_panel="Mask")
    ] = ModelSettings.causal
    scale: Annotated[str, Option(help="Multiply q·k by this: sqrt (1/√width of a head), none, or a number.")] = (
        ModelSettings.scale
    )
    temperature: Annotated[
        float, Option(help="Divide the scores by this: below 1 sharpens the weights, above 1 flattens them.")
    ] = ModelSettings.temperature
    dropout: Annotated[float, Option(help="Share of weights dropped, from 0 to below 1.")] = ModelSettings.dropout
    bias: Annotated[bool, Option(help="Add a bias in the projections.")] = ModelSettings.bias
    init: Annotated[str, Option(help="Draw weights as nn.Linear does: linear; or from 0 to 1: uniform.")] = (
        ModelSettings.init
    )
    seed: Annotated[int, Option(help="Draw the weights from this seed.")] = ModelSettings.seed
    device: Annotated[str, Option(help="auto, cpu, cuda, cuda:N or mps.")] = ModelSettings.device
    dtype: Annotated[str, Option(help="float32, float64, bfloat16 or float16.")] = ModelSettings.dtype
    truncate: Annotated[bool, Option("--truncate", help="Cut a text that is longer than the model reads.")] = (
        ModelSettings.truncate
    )
    dense: Annotated[
        bool | None,
        Option(
            "--dense/--factored",
            help="Keep whole maps, or what they are computed from; else by the number of tokens.",
            show_default=False,
        ),
    ] = ModelSettings.dense


@dataclass(frozen=True)
class Select:
    """What of it is shown; layers, heads and tokens count from 0."""

    layers: Annotated[str | None, Option(help="Layers, as 0-3,7.", show_default=False)] = None
    heads: Annotated[str | None, Option(help="Heads, as 0,2-3, or layer.head as 4.11,9.6.", show_default=False)] = None
    queries: Annotated[str | None, Option(help="Range of queries, as 10:40.", show_default=False)] = None
    keys: Annotated[str | None, Option(help="Range of keys, as :20.", show_default=False)] = None


@dataclass(frozen=True)
class Words:
    """Which tokens it is shown over."""

    words: Annotated[bool, Option("--words", help="Join the tokens of each word.")] = False
    no_special: Annotated[bool, Option("--no-special", help="Hide special tokens, such as [CLS].")] = False
    renormalize: Annotated[bool, Option("--renormalize", help="Let rows sum to 100% over what is shown.")] = False


@dataclass(frozen=True)
class Rank:
    """Which heads come first."""

    sort: Annotated[
        str | None,
        Option(help="Order heads by a metric of attnviz heads, largest first; -NAME: smallest.", show_default=False),
    ] = None
    top: Annotated[int | None, Option(help="Keep this many heads.", show_default=False)] = None


@dataclass(frozen=True)
class Combine:
    """One map made of all heads."""

    reduce: Annotated[
        str | None,
        Option(
            help="Combine all heads into one map: mean, max or rollout.",
            rich_help_panel="Select",
            show_default=False,
        ),
    ] = None
    residual: Annotated[float, Option(help="The residual's share of a row, in rollout.", rich_help_panel="Select")] = (
        0.5
    )


Ascii = Annotated[bool, Option("--ascii", help="Draw with ASCII characters only, without colour.")]
Title = Annotated[str | None, Option(help="Heading, instead of the text.", show_default=False)]


@dataclass(frozen=True)
class Look:
    """How it is drawn."""

    ascii: Ascii = False
    theme: Annotated[
        str | None, Option(help="light or dark; else figures are light, and a page as its reader's system.")
    ] = None
    size: Annotated[
        str | None, Option(help="Of a figure: 16:9, 4:3, 1:1, inches as 8x6, pixels as 1920x1080.", show_default=False)
    ] = None
    dpi: Annotated[int, Option(help="Pixels an inch, for figures.")] = 200
    per_slide: Annotated[int, Option(help="Heads on one slide, for .pptx.")] = 1
    title: Title = None
    style: Annotated[
        str | None,
        Option(
            help="heatmap, arcs (lines from token to token) or text (shaded by what --query attends to).",
            show_default=False,
        ),
    ] = None
    query: Annotated[
        str | None,
        Option(help="Show what this token, or the one of this number, looks at in the text.", show_default=False),
    ] = None
    color_scale: Annotated[str, Option(help="linear or log.")] = "linear"
    limits: Annotated[str, Option(help="Of the colours: shared by all heads, each head its own, or as 0:0.5.")] = (
        "shared"
    )
    cmap: Annotated[
        str | None, Option(help="Colormap: viridis, magma, cividis, Blues or any of matplotlib's.", show_default=False)
    ] = None
    pool: Annotated[str, Option(help="What a cell of several tokens shows of their weights: mean or max.")] = "mean"
    mark: Annotated[
        str | None,
        Option(help="Label the axes by lines, paragraphs or what this pattern matches.", show_default=False),
    ] = None
    annotate: Annotated[bool, Option("--annotate", help="Write the numbers into a figure's cells.")] = False
    font_size: Annotated[float | None, Option(help="Of a figure's tokens, in points.", show_default=False)] = None
    transparent: Annotated[bool, Option("--transparent", help="Leave a figure without a background.")] = False
    max_size: Annotated[str, Option(help="Of a page, as 50MB: longer maps are pooled to fit.")] = "50MB"


@dataclass(frozen=True)
class Output:
    """Where it goes."""

    output: Annotated[
        Path | None,
        Option("--output", "-o", help="Write a file; its suffix picks the format.", show_default=False),
    ] = None
    force: Annotated[bool, Option("--force", help="Replace the file where it exists.")] = False
    json: Annotated[bool, Option("--json", help="Print the exact numbers as JSON.")] = False


Batch = Annotated[
    Path | None, Option(help="Take each line of this file as a text.", rich_help_panel="Input", show_default=False)
]
Other = Annotated[
    str | None,
    Option(
        "--with", help="Compare with this text, or this saved recording.", rich_help_panel="Input", show_default=False
    ),
]
Second = Annotated[str | None, Argument(help="A saved recording to compare the first with.", show_default=False)]
WithModel = Annotated[str | None, Option(help="Compare with this model.", rich_help_panel="Model", show_default=False)]
Table = Annotated[
    str | None, Option(help="Print the numbers: scores, weights or both.", rich_help_panel="Look", show_default=False)
]
Half = Annotated[bool, Option("--half", help="Hold the factors of a long text in bfloat16.", rich_help_panel="Output")]
Head = Annotated[str, Option(help="The head that is shown, as 1, or layer.head as 0.1.", rich_help_panel="Select")]
Step = Annotated[
    str | None, Option(help="Show this step alone, as scores.", rich_help_panel="Select", show_default=False)
]


def spread_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with one parameter for every field of its parameters that are option groups."""
    hints = get_type_hints(command, include_extras=True)
    hints.pop("return", None)
    parameters = list(inspect.signature(command).parameters.values())
    groups = {name: group for name, group in hints.items() if hasattr(group, "__dataclass_fields__")}
    options = [
        option
        for parameter in parameters
        for option in (
            _options_of(groups[parameter.name])
            if parameter.name in groups
            else [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
        )
    ]

    def spread(**values: Any) -> None:
        built = {
            name: group(**{each.name: values.pop(each.name) for each in fields(group)})
            for name, group in groups.items()
        }
        command(**values, **built)

    spread.__name__, spread.__doc__ = command.__name__, command.__doc__
    spread.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    spread.__annotations__ = {option.name: option.annotation for option in options}
    return spread


def _options_of(group: type) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    for hint in hints.values():
        if isinstance(hint.__metadata__[0], OptionInfo):
            hint.__metadata__[0].rich_help_panel = hint.__metadata__[0].rich_help_panel or group.__name__
    return [
        inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=hints[each.name])
        for each in fields(group)
    ]
