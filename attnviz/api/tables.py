"""Returns the numbers of a recording as columns by name, which pandas, polars and pyarrow take as they are."""

from typing import TYPE_CHECKING, Any, Unpack, cast

from numpy.typing import NDArray

from attnviz.api.drawing import build, options_for_medium, report_options
from attnviz.maps.recording import Recording

if TYPE_CHECKING:
    from attnviz.api.drawing import DrawOptions
    from attnviz.metrics.head_frame import HeadFrame
    from attnviz.report.picture.report import ExactNumbers, HeadList

TABLE = ".csv"  # suffix of the files that have the same columns


def head_table(recording: Recording, **options: Unpack["DrawOptions"]) -> dict[str, NDArray[Any]]:
    """Returns the columns of ``attnviz heads RECORDING -o heads.csv`` by name, ``(heads,)`` each.

    Args:
        recording: the recording to measure.
        options: the options of ``attnviz heads`` by name, such as ``heads``, ``sort``, ``filter``, ``top`` and ``of``.

    Raises:
        AttnvizError: for an unknown option, or a value that does not suit the recording.
    """
    from attnviz.render.heads import columns_of_heads
    from attnviz.report.heads.head_atlas import heads_report

    report = cast("HeadList", heads_report((recording,), options_for_medium(report_options(options), TABLE)))
    return columns_of_heads(cast("HeadFrame", report.results))


def cell_table(recording: Recording, **options: Unpack["DrawOptions"]) -> dict[str, NDArray[Any]]:
    """Returns the columns of ``attnviz show RECORDING -o numbers.csv`` by name, ``(cells,)`` each.

    Args:
        recording: the recording whose cells are listed.
        options: the options of ``attnviz show`` by name, such as ``heads``, ``queries``, ``keys`` and ``of``.

    Raises:
        AttnvizError: for an unknown option, or a value that does not suit the recording.
    """
    from attnviz.render.data import columns_of_cells

    return columns_of_cells(cast("ExactNumbers", build(recording, TABLE, options)))
