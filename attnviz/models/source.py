"""AbstractSource: what makes recordings of texts."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from attnviz.base.errors import AttnvizError
from attnviz.models.settings import ModelSettings

if TYPE_CHECKING:
    from attnviz.maps.recording import Recording
    from attnviz.text.selection import Selection


class AbstractSource(ABC):
    """Something that attends: given a text, it records the attention of the chosen layers and heads."""

    @abstractmethod
    def __init__(self, settings: ModelSettings) -> None: ...

    @abstractmethod
    def record(self, text: str, selection: "Selection") -> "Recording":
        """The recording of one text.

        Raises:
            AttnvizError: if the text has no tokens, or the selection names what is not there.
        """

    def record_batch(self, texts: Sequence[str], selection: "Selection") -> "Recording":
        """The recording of several texts, run as one batch.

        Raises:
            AttnvizError: if this source takes one text at a time.
        """
        raise AttnvizError("--batch works with the seeded model; leave --model out")
