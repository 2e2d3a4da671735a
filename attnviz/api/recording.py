"""Defines the recording of the Python API, with methods that show, draw and save it, and opens saved recordings."""

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

from attnviz.base.errors import AttnvizError
from attnviz.maps.recording import Recording

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from attnviz.api.drawing import DrawOptions
    from attnviz.metrics.head_frame import HeadFrame
    from attnviz.report.picture.report import ExactNumbers, HeadList

FRAME_HEIGHT = 720  # pixels of the page in a notebook
NOTEBOOK_SIZE = "10MB"  # limit of a page, since a notebook keeps every page that it has shown
TABLE = ".csv"  # suffix of the files that have the columns of the tables


class DrawableRecording(Recording):
    """The maps of one run, in layer order, with methods that show, draw and save them.

    Raises:
        AttnvizError: if there are no maps.

    Example:
        >>> import attnviz, torch
        >>> module = attnviz.MultiHeadAttention(embed_dim=8, num_heads=2)
        >>> with attnviz.record(module) as recording:
        ...     output = module(torch.rand(1, 5, 8))
        >>> [(maps.layer, maps.heads, len(maps.query_tokens)) for maps in recording.maps]
        [(0, (0, 1), 5)]
        >>> figure = recording.figure(heads="0.1")
        >>> from attnviz.text.tokens import tokenize
        >>> with attnviz.record(module, tokens=tokenize("It rains. We stay in.")) as recording:
        ...     output = module(torch.rand(1, 7, 8))
        >>> recording.by("sentences").maps[0].key_tokens.labels
        ('It rains.', 'We stay in.')
    """

    def save(self, path: str | Path, force: bool = False) -> None:
        """Writes the recording as safetensors; ``attnviz.load`` and the command line read it.

        Args:
            path: path of the file.
            force: if true, an existing file is replaced.

        Raises:
            AttnvizError: if the file exists and ``force`` is false, or it cannot be written.
        """
        from attnviz.maps.saved import save
        from attnviz.render.formats import FORMATS, KINDS

        drawn_format = FORMATS.get(Path(path).suffix.lower())
        if drawn_format is not None and drawn_format.kind != "terminal":
            raise AttnvizError(
                f"{str(path)!r} names {KINDS[drawn_format.kind]}, and save writes a recording, run.safetensors; write "
                f"Path({Path(path).name!r}).write_bytes(attnviz.draw(recording, {drawn_format.suffix!r}))"
            )
        save(self, Path(path), force)

    def by(self, units: str) -> "DrawableRecording":
        """Returns the recording over units, as ``attnviz show --by`` draws it: a row and a column each.

        Weights are summed over the keys of a unit and averaged over its queries.

        Args:
            units: ``words``, ``sentences``, ``lines``, ``paragraphs``, ``turns``, ``passages``, any other name of the
                tokens' groups, or a regular expression at whose matches units begin.

        Raises:
            AttnvizError: if the tokens have no such units, or the regular expression cannot be used.
        """
        from attnviz.maps.grouped import regroup
        from attnviz.text.selection import Grouping, Selection

        return drawable(regroup(self, Selection(), Grouping(by=units)))

    def show(self, **options: Unpack["DrawOptions"]) -> None:
        """Prints the recording as ``attnviz show`` does.

        Args:
            options: those of ``attnviz.draw``.

        Raises:
            AttnvizError: for an unknown option, or a value that does not suit the recording.
        """
        from attnviz.api import drawing

        drawing.show(self, **options)

    def figure(self, **options: Unpack["DrawOptions"]) -> "Figure":
        """Returns the chosen heads as a matplotlib figure.

        Args:
            options: those of ``attnviz.draw``.

        Raises:
            AttnvizError: for an unknown option, or a value that does not suit the recording.
        """
        from attnviz.api import drawing

        return drawing.figure(self, **options)

    def head_table(self, **options: Unpack["DrawOptions"]) -> "dict[str, NDArray[Any]]":
        """Returns the columns that ``attnviz heads -o FILE.csv`` writes, by name, ``(heads,)`` each.

        ``pandas.DataFrame(recording.head_table())`` and ``polars.DataFrame(…)`` are tables with a row for each head.

        Args:
            options: the options of ``attnviz heads`` by name: ``sort="induction"``, ``filter="previous>0.5"``.

        Raises:
            AttnvizError: for an unknown option, or a value that does not suit the recording.

        Example:
            >>> import attnviz, torch
            >>> module = attnviz.MultiHeadAttention(embed_dim=8, num_heads=2)
            >>> with attnviz.record(module) as recording:
            ...     output = module(torch.rand(1, 5, 8))
            >>> table = recording.head_table()
            >>> table["head"].tolist(), table["entropy"].shape
            ([0, 1], (2,))
        """
        from attnviz.api.drawing import report_options
        from attnviz.render.data import columns_of_heads
        from attnviz.render.formats import options_for_medium
        from attnviz.report.heads.head_atlas import heads_report

        report = heads_report((self,), options_for_medium(report_options(options), TABLE))
        return columns_of_heads(cast("HeadFrame", cast("HeadList", report).results))

    def cell_table(self, **options: Unpack["DrawOptions"]) -> "dict[str, NDArray[Any]]":
        """Returns the columns that ``attnviz show -o FILE.csv`` writes, by name, ``(cells,)`` each.

        A masked cell has ``visible`` false, and NaN as its score and weight.

        Args:
            options: the options of ``attnviz.draw`` that choose cells: ``heads="1.1"``, ``queries="10:40"``.

        Raises:
            AttnvizError: for an unknown option, or a value that does not suit the recording.

        Example:
            >>> import attnviz, torch
            >>> module = attnviz.MultiHeadAttention(embed_dim=8, num_heads=2)
            >>> with attnviz.record(module, tokens=["Life", "is"]) as recording:
            ...     output = module(torch.rand(1, 2, 8))
            >>> recording.cell_table(heads="0.1")["key_token"].tolist()
            ['Life', 'is', 'Life', 'is']
        """
        from attnviz.api import drawing
        from attnviz.render.data import columns_of_cells

        return columns_of_cells(cast("ExactNumbers", drawing.build(self, TABLE, options)))

    def _repr_html_(self) -> str | None:
        """Returns the page of the recording in a frame, which notebooks show; ``None`` where pages cannot be drawn."""
        import html

        from attnviz.api import drawing
        from attnviz.render.formats import FORMATS, PAGE, draw

        if PAGE not in FORMATS:
            return None
        report = drawing.build(self, PAGE, {"max_size": NOTEBOOK_SIZE})
        page = html.escape(draw(report, PAGE).decode(), quote=True)
        return (
            f'<iframe title="{html.escape(report.caption, quote=True)}" sandbox="allow-scripts allow-downloads" '
            f'style="width: 100%; height: {FRAME_HEIGHT}px; border: 0" srcdoc="{page}"></iframe>'
        )


def drawable(recording: Recording) -> DrawableRecording:
    """Returns the recording as a `DrawableRecording`, which shares its maps."""
    return DrawableRecording(**{field.name: getattr(recording, field.name) for field in fields(Recording)})


def load(path: str | Path, whole: bool = False) -> DrawableRecording:
    """Opens a saved recording, which equals the one that was written; arrays are read from the file when they are used.

    Args:
        path: path of the file.
        whole: if true, the arrays of a large file are compared with their checksums too, as those of small files are.

    Raises:
        AttnvizError: if the file is not a complete recording of a version that this attnviz reads.

    Example:
        >>> import attnviz, tempfile, torch
        >>> module = attnviz.MultiHeadAttention(embed_dim=8, num_heads=2)
        >>> with attnviz.record(module) as recording:
        ...     output = module(torch.rand(1, 5, 8))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     recording.save(f"{folder}/run.safetensors")
        ...     print(load(f"{folder}/run.safetensors").maps[0].heads)
        (0, 1)
    """
    from attnviz.maps import saved

    return drawable(saved.load(path, whole))
