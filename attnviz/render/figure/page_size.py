"""The page that a look asks for: how large it is, who chooses that, and how large its letters are."""

from dataclasses import dataclass

from attnviz.report.picture.look import Look

PAGE_INCHES = (13.333, 7.5)  # inches, a slide; where no size is asked for, the most that the content may fill
FONT_SCALE_RANGE = (0.5, 6.0)  # how far fonts follow the page's size
COLUMN_SCALE = 0.67  # of a slide's letters, those of a journal: axes are named in 8 points
COLUMN_HEIGHTS = (4.5, 0.75)  # inches, or shares of its width, the more of which a figure in a column has at most
PAGE_MARGIN, COLUMN_MARGIN = 0.35, 0.06  # inches, the first of a slide


@dataclass(frozen=True)
class PageSize:
    """A page in inches.

    Attributes:
        width: of it, or the most.
        height: of it, or the most.
        scale: how many times larger than a slide's its letters are.
        margin: what is kept free at every edge.
        fixed: whether width and height are asked for, and not chosen by the content.
        column: whether the width alone is, as of a column of a journal.
    """

    width: float
    height: float
    scale: float
    margin: float
    fixed: bool = False
    column: bool = False

    @property
    def grows(self) -> bool:
        """Whether the content chooses width and height."""
        return not (self.fixed or self.column)


def page_size(look: Look, factor: float = 1.0) -> PageSize:
    """The page of a look, or one that is so many times a slide where the content chooses."""
    if look.inches is not None:
        wide, high = look.inches
        scale = min(max(min(wide / 10, high / 7.5), FONT_SCALE_RANGE[0]), FONT_SCALE_RANGE[1])
        return PageSize(wide, high, scale, PAGE_MARGIN * scale, fixed=True)
    if (wide := look.column_inches or 0.0) > 0:
        high = max(COLUMN_HEIGHTS[0], COLUMN_HEIGHTS[1] * wide)
        scale = min(max(wide / PAGE_INCHES[0], COLUMN_SCALE), FONT_SCALE_RANGE[1])
        return PageSize(wide, high, scale, COLUMN_MARGIN, column=True)
    return PageSize(PAGE_INCHES[0] * factor, PAGE_INCHES[1] * factor, 1.0, PAGE_MARGIN)
