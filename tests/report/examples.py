"""Reports that tests share."""

from typing import Any

from attnviz.maps.recording import Recording
from attnviz.report.build import build_report
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.report import DrawnReport, Report


def drawn(report: Report) -> DrawnReport:
    """The report, which has something to draw."""
    assert isinstance(report, DrawnReport)
    return report


def report_of(recording: Recording, **options: Any) -> DrawnReport:
    """The report that these options decide on."""
    return drawn(build_report(recording, ReportOptions(**options)))
