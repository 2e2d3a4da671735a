"""AbstractSource: a model that records its attention over texts."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from attnviz.base.errors import AttnvizError, option
from attnviz.models.settings import ModelSettings

if TYPE_CHECKING:
    from attnviz.maps.recording import Recording
    from attnviz.models.computation import Computation
    from attnviz.models.runnable import Runnable
    from attnviz.text.selection import Selection


class AbstractSource(ABC):
    """A model that records its attention over texts; what it cannot do is refused.

    Args:
        settings: the model's settings, of which it uses all that were given.
        built_in: the names of the models that come with the package, for messages.
    """

    def __init__(self, settings: ModelSettings, built_in: Sequence[str] = ()) -> None:
        self.settings, self.built_in = settings, built_in

    @abstractmethod
    def record(self, text: str, selection: "Selection", values: bool = False) -> "Recording":
        """The recording of one text; with ``values`` it keeps what each key moves.

        Raises:
            AttnvizError: if the text has no tokens, or the selection names what is not there.
        """

    def record_batch(self, texts: Sequence[str], selection: "Selection", values: bool = False) -> "Recording":
        """The recording of several texts, run as one batch.

        Raises:
            AttnvizError: if this source takes one text at a time.
        """
        raise AttnvizError(f"{option('batch')} works with the seeded model; leave {option('model')} out")

    @abstractmethod
    def compute(self, text: str, layer: int) -> "Computation":
        """Every number of one layer over one text.

        Raises:
            AttnvizError: if the text has no tokens, or there is no such layer.
        """

    def runnable(self, text: str | None) -> "Runnable":
        """The model and what it reads, to be run with heads removed; ``None`` is the model's own example.

        Raises:
            AttnvizError: if this source has no model that has learned anything, or needs a text.
        """
        raise AttnvizError(
            f"the seeded model has learned nothing that heads could be needed for; {option('model', 'trained')} or a "
            "Hugging Face model works"
        )
