"""What a command found of heads to a Report: a list of it, or layers by heads as a picture."""

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
FoundReport = HeadList | Heatmaps | HeadAtlas
OF_PICTURE = ("Rows are layers, columns heads.",)
OF_CHANGES = ("Rows are layers, columns heads; colours are after less before.",)


@dataclass(frozen=True, eq=False, kw_only=True)
class Found:
    """What a command found, before it is known whether it is listed or drawn.

    Attributes:
        title: the heading, where no other was chosen.
        caption: it in one sentence.
        remarks: what a reader must know.
        results: every number, exact.
        summary: makes the list.
        panels: makes the picture.
        refusal: why there is no page, and what works; "" where there is one, of a table of heads.
        of_list: remarks of the list alone, which come first.
        of_picture: the same of the picture.
        about: where the numbers came from, as JSON values.
    """

    title: str
    caption: str
    remarks: tuple[str, ...]
    results: HeadFrame | Results
    summary: Callable[[], Summary]
    panels: Callable[[], Sequence[Panel]]
    refusal: str = ""
    of_list: tuple[str, ...] = ()
    of_picture: tuple[str, ...] = OF_PICTURE
    about: dict[str, object] = field(default_factory=dict)

    def report(self, options: ReportOptions) -> FoundReport:
        """Returns the list, or where a picture is drawn the panels; of a table of heads its atlas.

        Raises:
            AttnvizError: for a page.
        """
        look, title = options.look, options.look.title or self.title
        said: dict[str, Any] = {"title": title, "caption": self.caption, "look": look}
        if options.medium.lists_heads:
            remarks = (*self.of_list, *self.remarks)
            return HeadList(**said, remarks=remarks, results=self.results, summary=self.summary())
        if self.refusal and not options.medium.draws_maps:
            raise AttnvizError(self.refusal)
        panels = share_scales(self.panels(), look)
        said |= {"panels": panels, "remarks": (*self.of_picture, *self.remarks), "about": self.about}
        if isinstance(self.results, HeadFrame):
            return HeadAtlas(**said, results=self.results)
        if len(panels) == 1 and panels[0].values.size <= MAX_NUMBERED:
            said["look"] = replace(look, annotate=True)
        return Heatmaps(**said)
