"""Turns numbers of heads that a command computed into a report: a list, or maps of layers by heads."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from attnviz.base.errors import AttnvizError
from attnviz.metrics.head_frame import HeadFrame
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.panels import Panel
from attnviz.report.picture.report import HeadAtlas, HeadList, Heatmaps, Results, Summary
from attnviz.report.picture.scales import share_scales

MAX_NUMBERED = 48  # cells of a picture that shows its numbers without being asked
HeadsReport = HeadList | Heatmaps | HeadAtlas
PICTURE_REMARKS = ("Rows are layers, columns are heads.",)
CHANGE_REMARKS = ("Rows are layers, columns are heads; colours are after minus before: red is more, blue is less.",)


@dataclass(frozen=True, eq=False, kw_only=True)
class HeadResults:
    """Numbers of heads with all that a list or a picture of them needs, before one of the two is chosen.

    Attributes:
        title: the heading, unless the user gave one.
        caption: the result in one sentence.
        remarks: sentences about the numbers for the reader.
        results: all numbers, exact.
        summary: builds the list.
        panels: builds the panels of the picture.
        refusal: the message that refuses a page and says what to do; "" for a table of heads, which has a page.
        has_page: True if a page draws the list itself.
        list_remarks: remarks of the list only, before the others.
        picture_remarks: remarks of the picture only, before the others.
        about: the origin of the numbers, as JSON values.
    """

    title: str
    caption: str
    remarks: tuple[str, ...]
    results: HeadFrame | Results
    summary: Callable[[], Summary]
    panels: Callable[[], Sequence[Panel]]
    refusal: str = ""
    has_page: bool = False
    list_remarks: tuple[str, ...] = ()
    picture_remarks: tuple[str, ...] = PICTURE_REMARKS
    about: dict[str, object] = field(default_factory=dict)

    def report(self, options: ReportOptions) -> HeadsReport:
        """Returns the list if the medium lists heads, or for a page if ``has_page``; else the picture.

        The picture is an atlas for a table of heads, else heatmaps, which show their numbers if they have at most
        `MAX_NUMBERED` cells.

        Raises:
            AttnvizError: for a page, with the message ``refusal``, if these numbers cannot be shown on a page.
        """
        look, title = options.look, options.look.title or self.title
        fields: dict[str, Any] = {"title": title, "caption": self.caption, "look": look}
        if options.medium.lists_heads or (self.has_page and not options.medium.draws_maps):
            remarks = (*(self.list_remarks if options.medium.lists_heads else ()), *self.remarks)
            return HeadList(**fields, remarks=remarks, results=self.results, summary=self.summary())
        if self.refusal and not options.medium.draws_maps:
            raise AttnvizError(self.refusal)
        panels = share_scales(self.panels(), look)
        fields |= {"panels": panels, "remarks": (*self.picture_remarks, *self.remarks), "about": self.about}
        if isinstance(self.results, HeadFrame):
            return HeadAtlas(**fields, results=self.results)
        if sum(panel.values.size for panel in panels) <= MAX_NUMBERED:
            fields["look"] = replace(look, annotate=True)
        return Heatmaps(**fields)
