"""Represents a sound that a model hears; the place of a token is a span of its samples."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, final

from numpy.typing import NDArray

from attnviz.base.arrays import ByteArray, Float64Array, IntArray
from attnviz.base.errors import AttnvizError

if TYPE_CHECKING:
    from attnviz.base.tensor_file import StoredEntry

MAX_SECONDS = 2 * 60 * 60
MAX_RATE = 768_000  # samples per second
ENVELOPE_POINTS = 2048  # at most


@final
@dataclass(frozen=True, eq=False)
class Sound:
    """A sound, of which only the envelope is kept: the words cannot be heard from it.

    Attributes:
        envelope: ``(points,)``, the largest amplitude in each of equal parts of the sound, 0 to 255.
        samples: the number of samples of the original; places count them.
        rate: samples per second of the original.
        title: its name in headings, such as the name of its file.

    Raises:
        AttnvizError: if the sound is empty or longer than ``MAX_SECONDS``, its envelope is empty or has more than
            ``ENVELOPE_POINTS``, or its rate is not 1 to ``MAX_RATE``.
    """

    name: ClassVar = "sound"  # its name in files and messages
    order: ClassVar[Literal["sequence"]] = "sequence"  # frames have a previous and a next one
    place_size: ClassVar = 2  # the first sample, and the one after the last

    envelope: ByteArray
    samples: int
    rate: int
    title: str = ""

    def __post_init__(self) -> None:
        """Makes the envelope read-only; raises AttnvizError if its size, the length or the rate is out of range."""
        if self.envelope.ndim != 1 or not 0 < len(self.envelope) <= ENVELOPE_POINTS:
            shape = self.envelope.shape
            raise AttnvizError(f"a sound needs an envelope of 1 to {ENVELOPE_POINTS} points, not {shape}")
        if not 0 < self.rate <= MAX_RATE or not 0 < self.samples <= MAX_SECONDS * self.rate:
            raise AttnvizError(
                f"a sound cannot have {self.samples} samples at {self.rate} Hz; give 1 sample to two hours at 1 to "
                f"{MAX_RATE:,} Hz"
            )
        self.envelope.setflags(write=False)

    @property
    def seconds(self) -> float:
        """The length of the sound in seconds."""
        return self.samples / self.rate

    def middles(self, places: IntArray) -> Float64Array:
        """Returns the middle of each place in seconds, ``(tokens,)``."""
        middles: Float64Array = places.mean(axis=1) / self.rate
        return middles

    def contains(self, places: IntArray) -> bool:
        """True if all places, ``(tokens, 2)``, are spans within the sound."""
        starts, stops = places.T
        return bool(((starts >= 0) & (starts <= stops) & (stops <= self.samples)).all())

    def longer_of(self, other: object) -> "Sound":
        """Returns this sound, whatever ``other`` is: a sound does not grow."""
        return self

    def to_tensors(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Returns the values that a file stores in its header, and the arrays that it stores."""
        sizes = {"samples": self.samples, "rate": self.rate, "points": len(self.envelope)}
        return {**sizes, "title": self.title}, {"envelope": self.envelope}

    @classmethod
    def from_tensors(cls, entry: "StoredEntry") -> Self:
        """Returns the sound that a file entry stores."""
        envelope = entry.array("envelope", "uint8", (entry.count("points", ENVELOPE_POINTS + 1),))
        return cls(envelope, entry.count("samples"), entry.count("rate"), entry.line("title"))
