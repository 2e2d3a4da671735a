"""Computes the size of a look's page, and of its fonts."""

from dataclasses import dataclass

from attnviz.report.picture.look import Look

PAGE_INCHES = (13.333, 7.5)  # a slide; without a size given, the content fills at most this
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
        fixed: True if the user gave width and height.
        column: True if the user gave only the width, as for a column of a journal.
    """

    width: float
    height: float
    scale: float
    margin: float
    fixed: bool = False
    column: bool = False

    @property
    def grows(self) -> bool:
        """True if the content chooses width and height."""
        return not (self.fixed or self.column)


def page_size(look: Look, factor: float = 1.0) -> PageSize:
    """Returns the page of a look: of its width and height, or of its width alone; else a slide that fits its content.

    Args:
        look: the look, which may have a size.
        factor: enlarges the largest size of a page whose size the content chooses.
    """
    if look.inches is not None:
        width, height = look.inches
        scale = min(max(min(width / 10, height / 7.5), FONT_SCALE_RANGE[0]), FONT_SCALE_RANGE[1])
        margin = PAGE_MARGIN if look.frame is None else FRAME_MARGIN
        return PageSize(width, height, scale, margin * scale, fixed=True)
    if look.column_inches is not None:
        width = look.column_inches
        height = max(COLUMN_HEIGHTS[0], COLUMN_HEIGHTS[1] * width)
        scale = min(max(width / PAGE_INCHES[0], COLUMN_SCALE), FONT_SCALE_RANGE[1])
        return PageSize(width, height, scale, COLUMN_MARGIN, column=True)
    return PageSize(PAGE_INCHES[0] * factor, PAGE_INCHES[1] * factor, 1.0, PAGE_MARGIN)
