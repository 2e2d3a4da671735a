"""A renderer of its own file, as another format would have: each map as a table in Markdown."""

from typing import IO

from attnviz.report.picture.report import DrawnReport, Report


def write(report: Report, suffix: str, file: IO[bytes]) -> None:
    """Writes the titles of the report and of its maps."""
    assert isinstance(report, DrawnReport)
    assert report.kind == "maps"
    file.write("\n".join([f"# {report.title}", *(f"## {panel.title}" for panel in report.panels)]).encode())
