"""What a command found of heads to a Report: a list of it, or layers by heads as a picture."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from attnviz.base.errors import AttnvizError
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.panels import Panel
from attnviz.report.picture.report import Heatmaps, ResultList, Results, Summary
from attnviz.report.picture.scales import share_scales

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
        refusal: why there is no page, and what works.
        of_list: remarks of the list alone, which come first.
        of_picture: the same of the picture.
        about: where the numbers came from, as JSON values.
    """

    title: str
    caption: str
    remarks: tuple[str, ...]
    results: Results
    summary: Callable[[], Summary]
    panels: Callable[[], Sequence[Panel]]
    refusal: str
    of_list: tuple[str, ...] = ()
    of_picture: tuple[str, ...] = OF_PICTURE
    about: dict[str, object] = field(default_factory=dict)

    def report(self, options: ReportOptions) -> ResultList | Heatmaps:
        """The list, or where a picture is drawn the panels.

        Raises:
            AttnvizError: for a page.
        """
        title = options.look.title or self.title
        if options.medium.lists_heads:
            return ResultList(
                title=title,
                caption=self.caption,
                remarks=(*self.of_list, *self.remarks),
                look=options.look,
                results=self.results,
                summary=self.summary(),
            )
        if not options.medium.draws_maps:
            raise AttnvizError(self.refusal)
        return Heatmaps(
            title=title,
            panels=share_scales(self.panels(), options.look),
            caption=self.caption,
            remarks=(*self.of_picture, *self.remarks),
            look=options.look,
            about=self.about,
        )
