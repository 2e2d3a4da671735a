"""Defines the settings that build or load a model and run it, with their options and checks."""

import math
from dataclasses import dataclass
from typing import Annotated, Any

from attnviz.base.errors import AttnvizError, choices, option
from attnviz.base.machine import DTYPES
from attnviz.base.options import OneOf, Option, below_one, check_options, in_range, name_lister
from attnviz.text.head_name import TOWERS
from attnviz.text.selection import ATTENTION_PARTS, IMPLICIT

SAVED_ORDER = """
model tokenizer num_heads embed_dim num_layers qk_dim value_dim causal dropout bias scale temperature init seed device
dtype context attention pair chat generate device_map dense truncate
""".split()
INITS = ("linear", "uniform")
MAX_WIDTH = 65_536
MAX_GENERATED_TOKENS = 4096


def _built_in_models() -> dict[str, str]:
    """Returns the names of the models of this package, with a description of each, for completion in a shell."""
    return {
        "seeded": "untrained, drawn from a seed",
        "trained": "small, trained to repeat what it has read",
        "trained-picture": "small, trained to find digits in a picture",
    }


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """The settings that build or load a model and run it; each field's option says what it does.

    Raises:
        AttnvizError: for a number out of range, an embedding width that the number of heads does not divide, an unknown
            name, a context without tokens, or a context with a causal mask.
    """

    tokenizer: Annotated[str, Option("Split by word, char, byte, or a tokenizer.json.")] = "word"
    model: Annotated[
        str,
        Option(
            "Use seeded (random), trained or trained-picture (small, included), a folder, a .gguf file, or a hub name.",
            brief="Use 'trained', a folder, a .gguf file or a hub name.",
            names=_built_in_models,
        ),
    ] = "seeded"
    attention: Annotated[
        str | None,
        Option(
            "Choose encoder, decoder or cross of an encoder-decoder, text or picture of a model that reads both, or "
            "the implicit attention of linear layers.",
            OneOf((*ATTENTION_PARTS, *TOWERS, IMPLICIT)),
        ),
    ] = None
    pair: Annotated[str | None, Option("Add a second text, as a pair for BERT.")] = None
    context: Annotated[str | None, Option("Take keys and values from this text (cross-attention).")] = None
    chat: Annotated[bool, Option("Put the text into the model's chat template.")] = False
    generate: Annotated[int, Option("Generate this many tokens first.", in_range(0, MAX_GENERATED_TOKENS))] = 0
    device_map: Annotated[str | None, Option("Use auto to spread a large model over devices (accelerate).")] = None
    num_heads: Annotated[int, Option("Number of heads per layer.", in_range(1, 4096))] = 4
    embed_dim: Annotated[int, Option("Features per token; divisible by num-heads.", in_range(1, MAX_WIDTH))] = 32
    num_layers: Annotated[int, Option("Number of layers, each with a residual connection.", in_range(1, 1024))] = 1
    qk_dim: Annotated[
        int | None,
        Option("Width of a query and a key in each head (default: embed-dim / num-heads).", in_range(1, MAX_WIDTH)),
    ] = None
    value_dim: Annotated[
        int | None,
        Option("Width of values in each head (default: embed-dim / num-heads).", in_range(1, MAX_WIDTH)),
    ] = None
    causal: Annotated[
        bool,
        Option(
            "Let a query see only keys up to its own position.",
            brief="Let a query see only keys up to its own position.",
        ),
    ] = False
    scale: Annotated[str, Option("Multiply q·k by this: sqrt (1/√width of a head), none, or a number.")] = "sqrt"
    temperature: Annotated[
        float,
        Option("Divide the scores by this: below 1 sharpens the weights, above 1 flattens them."),
    ] = 1.0
    dropout: Annotated[float, Option("Drop this share of the weights, from 0 to below 1.", below_one)] = 0.0
    bias: Annotated[bool, Option("Add a bias in the projections.")] = True
    init: Annotated[
        str,
        Option(
            "Start the parameters at random as nn.Linear does (linear), or from 0 to 1 (uniform).",
            OneOf(INITS),
        ),
    ] = "linear"
    seed: Annotated[int, Option("Draw the weights from this seed.")] = 0
    device: Annotated[
        str, Option("Run on auto, cpu, cuda, cuda:N or mps.", names=name_lister(("auto", "cpu", "cuda", "mps")))
    ] = "auto"
    dtype: Annotated[str, Option("Compute in float32, float64, bfloat16 or float16.", names=name_lister(DTYPES))] = (
        "float32"
    )
    truncate: Annotated[bool, Option("Cut a text that is longer than the model reads.")] = False
    dense: Annotated[
        bool | None,
        Option("Keep whole maps; or, as for long texts by default, only queries and keys."),
    ] = None

    def __post_init__(self) -> None:
        """Raises AttnvizError for the first setting that is out of range, unknown, or does not fit another setting."""
        check_options(self)
        is_seeded = self.model == ModelSettings.model
        needs_head_width = self.qk_dim is None or self.value_dim is None
        if is_seeded and needs_head_width and self.embed_dim % self.num_heads:
            nearest_multiple = max(1, round(self.embed_dim / self.num_heads)) * self.num_heads
            raise AttnvizError(
                f"{option('embed_dim', self.embed_dim)} is not divisible by {option('num_heads', self.num_heads)}; "
                f"use {option('embed_dim', nearest_multiple)}"
            )
        if not 0 <= self.seed < 2**63:  # torch takes seeds of 64 bits with a sign
            raise AttnvizError(f"{option('seed')} {self.seed} is out of range; give 0 to 2**63 - 1")
        if not 0 < self.temperature < math.inf:
            temperature_option = f"{option('temperature')} {self.temperature:g}"
            raise AttnvizError(f"{temperature_option} is out of range; give a number above 0 (1 changes nothing)")
        if self.context is not None:
            has_only_spaces = not self.context.strip()
            if not self.context or (self.tokenizer == "word" and has_only_spaces):
                raise AttnvizError(f"{option('context')} has no tokens; give a text with at least one word")
            if self.causal:
                causal_option = option("causal", value=self.causal)
                raise AttnvizError(
                    f"{causal_option} needs queries and keys from one text; with {option('context')} leave it out"
                )
        self.scale_for(1)  # raises if the scale is unknown, at any width
        from attnviz.base.machine import refuse_unknown_device

        refuse_unknown_device(self.device)
        if self.dtype not in DTYPES:
            raise AttnvizError(f"unknown {option('dtype')} {self.dtype!r}; {choices(self.dtype, DTYPES)}")

    @property
    def query_width(self) -> int:
        """The width of a query and a key in each head: ``qk_dim``, or the embedding's width divided by the heads."""
        return self.embed_dim // self.num_heads if self.qk_dim is None else self.qk_dim

    @property
    def value_width(self) -> int:
        """The width of a value in each head: ``value_dim``, or the embedding's width divided by the heads."""
        return self.embed_dim // self.num_heads if self.value_dim is None else self.value_dim

    def scale_for(self, width: int) -> float:
        """Returns the factor of q·k, before the temperature, for queries and keys of this width.

        It is 1/√width for ``sqrt``, 1 for ``none``, and the number itself for a number.
        """
        if self.scale in ("sqrt", "none"):
            return width**-0.5 if self.scale == "sqrt" else 1.0
        try:
            scale = float(self.scale)
        except (ValueError, TypeError):  # a file may hold anything
            scale = math.nan
        if not math.isfinite(scale) or scale == 0:
            scale_option = f"{option('scale')} {self.scale!r}"
            raise AttnvizError(f"{scale_option} is not a scale; choose sqrt, none or a number such as 0.125")
        return scale

    def as_json(self) -> dict[str, Any]:
        """Returns the settings as JSON values, in an order that keeps the bytes of saved recordings the same."""
        return {name: getattr(self, name) for name in dict.fromkeys((*SAVED_ORDER, *vars(self)))}
