"""Writes reports as pictures to new files."""

import os
from pathlib import Path

from attnviz.base.errors import AttnvizError, or_list
from attnviz.base.files import output_file
from attnviz.render.formats import FORMATS, write
from attnviz.report.picture.report import Report

PICTURE_SUFFIXES = tuple(row.suffix for row in FORMATS.values() if row.one_page)


def save_report(report: Report, path: Path) -> None:
    """Writes a report as a picture to a new file, in the format of its suffix."""
    refuse_picture(path)
    with output_file(path) as file:
        write(report, path.suffix.lower(), file)


def refuse_picture(path: Path) -> None:
    """Raises AttnvizError if the suffix is not a picture format's, or the file exists."""
    if path.suffix.lower() not in PICTURE_SUFFIXES:
        raise AttnvizError(f"{path.name!r} is not a picture; choose {or_list(PICTURE_SUFFIXES)}")
    if os.path.lexists(path):
        raise AttnvizError(f"{str(path)!r} exists; choose another name")
