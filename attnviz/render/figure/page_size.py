"""Computes the size of a look's page, and of its fonts."""

from dataclasses import dataclass

from attnviz.report.picture.look import Look

PAGE_INCHES = (13.333, 7.5)  # a slide; without a size given, the content fills at most this
FULL_SCALE_INCHES = (10.0, 7.5)  # the smallest page of a given size on which fonts have the scale 1
FONT_SCALE_RANGE = (0.5, 6.0)  # limits between which fonts scale with the page
COLUMN_SCALE = 0.67  # font scale in a journal: the names of axes then have 8 points
COLUMN_HEIGHTS = (4.5, 0.75)  # greatest height in a journal: so many inches or times the width, whichever is more
PAGE_MARGIN, COLUMN_MARGIN = 0.35, 0.06  # inches, of a slide and of a figure in a journal
FRAME_MARGIN = 0.12  # of a picture on a slide, which has free space around it


@dataclass(frozen=True)
class PageSize:
    """A page, in inches.

    Attributes:
        width: the width, or the greatest width if the content chooses it.
        height: the height, or the greatest height if the content chooses it.
        scale: the size of fonts relative to those of a slide.
        margin: the free space at every edge.
        is_fixed: True if the user gave width and height.
        is_column: True if the user gave only the width, such as that of a journal's column.
    """

    width: float
    height: float
    scale: float
    margin: float
    is_fixed: bool = False
    is_column: bool = False

    @property
    def grows(self) -> bool:
        """True if the content chooses width and height."""
        return not (self.is_fixed or self.is_column)


def page_size(look: Look, factor: float = 1.0) -> PageSize:
    """Returns the page that a look asks for.

    With a width and a height it is fixed; with a width alone it is a column, whose content chooses the height. Without
    a width, the content chooses the size, up to that of a slide times ``factor``.
    """
    if look.inches is not None:
        width, height = look.inches
        scale = min(
            max(min(width / FULL_SCALE_INCHES[0], height / FULL_SCALE_INCHES[1]), FONT_SCALE_RANGE[0]),
            FONT_SCALE_RANGE[1],
        )
        margin = PAGE_MARGIN if look.frame is None else FRAME_MARGIN
        return PageSize(width, height, scale, margin * scale, is_fixed=True)
    if look.column_inches is not None:
        width = look.column_inches
        height = max(COLUMN_HEIGHTS[0], COLUMN_HEIGHTS[1] * width)
        scale = min(max(width / PAGE_INCHES[0], COLUMN_SCALE), FONT_SCALE_RANGE[1])
        return PageSize(width, height, scale, COLUMN_MARGIN, is_column=True)
    return PageSize(PAGE_INCHES[0] * factor, PAGE_INCHES[1] * factor, 1.0, PAGE_MARGIN)
