"""ModelSettings: how a model is built or loaded, and how it is run."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from attnviz.base.errors import AttnvizError, known_names
from attnviz.base.machine import refuse_unknown_device, refuse_unknown_dtype
from attnviz.text.selection import ATTENTION_PARTS

MAX_SIZES = {"num_heads": 4096, "embed_dim": 65_536, "num_layers": 1024, "qk_dim": 65_536, "value_dim": 65_536}
MAX_GENERATED_TOKENS = 4096
INITS = ("linear", "uniform")


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """What a model is built or loaded with; the defaults are those of the command line.

    Raises:
        AttnvizError: for a number out of range, heads that do not divide the width, or a name not known.
    """

    model: str = "seeded"
    tokenizer: str = "word"
    num_heads: int = 4
    embed_dim: int = 32
    num_layers: int = 1
    qk_dim: int | None = None
    value_dim: int | None = None
    causal: bool = False
    dropout: float = 0.0
    bias: bool = True
    scale: str = "sqrt"
    temperature: float = 1.0
    init: str = "linear"
    seed: int = 0
    device: str = "auto"
    dtype: str = "float32"
    context: str | None = None
    attention: str | None = None
    pair: str | None = None
    chat: bool = False
    generate: int = 0
    device_map: str | None = None
    dense: bool | None = None
    truncate: bool = False

    def __post_init__(self) -> None:
        for name, largest in MAX_SIZES.items():
            number = getattr(self, name)
            if number is not None and not 1 <= number <= largest:
                raise AttnvizError(f"{option(name)} {number} is out of range; 1 to {largest} works")
        if None in (self.qk_dim, self.value_dim) and self.embed_dim % self.num_heads:
            near = max(1, round(self.embed_dim / self.num_heads)) * self.num_heads
            raise AttnvizError(
                f"--embed-dim {self.embed_dim} is not divisible by --num-heads {self.num_heads}; {near} would be"
            )
        if not 0 <= self.dropout < 1:
            raise AttnvizError(f"--dropout {self.dropout:g} is out of range; from 0 to below 1 works")
        if not 0 <= self.seed < 2**63:
            raise AttnvizError(f"--seed {self.seed} is out of range; 0 to 2**63 - 1 works")
        if not 0 < self.temperature < math.inf:
            raise AttnvizError(f"--temperature {self.temperature:g} is out of range; above 0 works, 1 changes nothing")
        if self.init not in INITS:
            raise AttnvizError(f"unknown --init {self.init!r}; {known_names(INITS)} works")
        if self.attention not in (None, *ATTENTION_PARTS):
            raise AttnvizError(f"unknown --attention {self.attention!r}; {known_names(ATTENTION_PARTS)} works")
        if not 0 <= self.generate <= MAX_GENERATED_TOKENS:
            raise AttnvizError(f"--generate {self.generate} is out of range; 0 to {MAX_GENERATED_TOKENS} works")
        self._refuse_context()
        self.scale_for(1)
        refuse_unknown_device(self.device)
        refuse_unknown_dtype(self.dtype)

    def _refuse_context(self) -> None:
        if self.context is None:
            return
        if not self.context or (self.tokenizer == "word" and not self.context.strip()):
            raise AttnvizError("--context holds no tokens; a text with a word in it works")
        if self.causal:
            raise AttnvizError("--causal orders the tokens of one text; with --context leave it out")

    @property
    def query_width(self) -> int:
        """The width of a query and a key in each head."""
        return self.embed_dim // self.num_heads if self.qk_dim is None else self.qk_dim

    @property
    def value_width(self) -> int:
        """The width of a value in each head."""
        return self.embed_dim // self.num_heads if self.value_dim is None else self.value_dim

    @property
    def score_scale(self) -> float:
        """What q·k is multiplied by in all: the scale over the temperature."""
        return self.scale_for(self.query_width) / self.temperature

    def scale_for(self, width: int) -> float:
        """What q·k is multiplied by in a head of this width."""
        if self.scale in ("sqrt", "none"):
            return width**-0.5 if self.scale == "sqrt" else 1.0
        try:
            scale = float(self.scale)
        except ValueError:
            scale = math.nan
        if not math.isfinite(scale) or scale == 0:
            raise AttnvizError(f"--scale {self.scale!r} is no scale; sqrt, none or a number such as 0.125 works")
        return scale

    def as_json(self) -> dict[str, Any]:
        """The settings as JSON values."""
        return asdict(self)


def option(name: str) -> str:
    """A setting as the command line writes it: ``num_heads`` is ``--num-heads``."""
    return f"--{name.replace('_', '-')}"
