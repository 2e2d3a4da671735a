"""Turns a file of notes into a story: a picture of the place of each note, in the order of the notes."""

import re
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import parse_qsl

from attnviz.base.errors import AttnvizError, option
from attnviz.maps.recording import ChosenHead, Recording
from attnviz.report.maps.combined import combined_report
from attnviz.report.maps.heatmaps import filtered_heads_of, shows_images
from attnviz.report.maps.text_rows import token_report
from attnviz.report.picture.look import COLOR_SCALES
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.report import Chapter, DrawnReport, Report
from attnviz.report.words.captions import count_phrase, model_name, numbered_token
from attnviz.report.words.notes import notes_of
from attnviz.text.places import find_place
from attnviz.text.selection import Selection

REDUCTIONS = {"mean": "mean", "max": "max", "rollout": "rollout"}  # ways to combine heads, by their names in addresses
STYLES = {"arcs": "arcs", "text": "text"}
ROW_VIEWS = ("text", "lens")  # views in an address that show one token's weights, the first if it names none

Address = dict[str, str]
Draw = Callable[[ReportOptions], Report]


def with_story(report: DrawnReport, recording: Recording, options: ReportOptions, draw: Draw) -> DrawnReport:
    """Returns the report with the notes in the file that the look names, each with the picture that its place shows.

    ``draw`` returns the report of the recording's heads with some options. Without notes the report is unchanged.
    """
    pictures = []
    for note in notes_of(options.look):
        address = dict(parse_qsl(note["place"].removeprefix("#")))
        try:
            picture = _picture_at(address, recording, options, draw)
        except AttnvizError as error:
            raise AttnvizError(f"{option('notes')}: {note['place']}: {error}") from None
        pictures.append(Chapter(note["text"], picture))
    if not pictures:
        return report
    # The title slide has the remarks that hold for every note.
    remarks = [line for line in report.remarks if all(line in chapter.report.remarks for chapter in pictures)]
    caption = f"Attention of {model_name(recording)}: {count_phrase(len(pictures), 'slides')}, one for each note."
    return replace(report, caption=caption, remarks=tuple(remarks), story=tuple(pictures))


def _picture_at(address: Address, recording: Recording, options: ReportOptions, draw: Draw) -> DrawnReport:
    """Returns the picture that the page shows at an address: its heads, one token in all heads, or all heads.

    Heads over an image are drawn over it, with the address's query, unless the address names another view.
    """
    # A heatmap without notes, with the colour scale and limits that the address names.
    look, scale = options.look, address.get("scale")
    color_scale = scale if scale in COLOR_SCALES else look.color_scale
    limits = "head" if address.get("limits") == "head" else look.limits
    look = replace(look, notes=None, pinned_notes=None, style="heatmap", color_scale=color_scale, limits=limits)
    names = re.sub(r"~\d+", "", address.get("heads", address.get("head", "")))  # ~2: the second head of a name
    selection = options.selection
    if names:
        selection = replace(selection, pairs=Selection.parse(heads=names).pairs, heads=None)
    heatmap_options = replace(options, look=look, selection=selection)
    heads = filtered_heads_of(recording, heatmap_options)
    image_options = replace(heatmap_options, look=replace(look, style=None, query=address.get("query")))
    is_row = address.get("view", ROW_VIEWS[0]) in ROW_VIEWS and ("query" in address or "key" not in address)
    is_over_image = is_row and address.get("direction") != "from" and shows_images(heads, image_options)
    head_options = image_options if is_over_image else heatmap_options
    method = REDUCTIONS.get(address.get("together", ""))
    if names and method is not None:
        return _require_drawn(combined_report(recording, head_options, method, head_options.residual))
    if is_over_image:
        return _require_drawn(draw(head_options))
    if not names:
        names_token = bool(address.keys() & {"query", "key"})
        return _token_picture(address, recording, head_options) if names_token else _require_drawn(draw(head_options))

    style = STYLES.get(address.get("view", ""))
    if style == "arcs" or (style == "text" and "query" in address):
        query = address["query"] if style == "text" else None
        styled_options = replace(head_options, look=replace(head_options.look, style=style, query=query))
        try:
            return _require_drawn(draw(styled_options))
        except AttnvizError:
            pass  # too many tokens for arcs or text: the map below shows the same weights
    report = _require_drawn(draw(head_options))
    query_index, key_index = marked_pair = _outlined_pair(address, heads[0])
    panels = tuple(replace(panel, marked=marked_pair) for panel in report.panels)
    outlined = [
        f"{numbered_token(tokens, index)} as {axis}"
        for axis, tokens, index in (
            ("query", heads[0].maps.query_tokens, query_index),
            ("key", heads[0].maps.key_tokens, key_index),
        )
        if index is not None
    ]
    outline_remarks = (f"Outlined: {', '.join(outlined)}.",) if outlined else ()
    return replace(report, panels=panels, remarks=(*outline_remarks, *report.remarks))


def _require_drawn(report: Report) -> DrawnReport:
    """Returns the report, or raises AttnvizError if it has numbers but no picture."""
    if isinstance(report, DrawnReport):
        return report
    raise AttnvizError("this place has numbers but no picture; use a head, such as #head=3.4")


def _outlined_pair(address: Address, head: ChosenHead) -> tuple[int | None, int | None]:
    """Returns the indices of the query and the key that an address names; ``None`` for each that it does not name."""
    query = find_place(head.maps.query_tokens, address["query"])[0] if "query" in address else None
    key = find_place(head.maps.key_tokens, address["key"], "key")[0] if "key" in address else None
    return query, key


def _token_picture(address: Address, recording: Recording, options: ReportOptions) -> DrawnReport:
    """Returns the picture of one token's weights in all heads, in its row, or in its column if the address says so."""
    heads = filtered_heads_of(recording, options)
    query, key = _outlined_pair(address, heads[0])
    is_query = query is not None and (key is None or address.get("direction") != "from")
    token, other_token = (query, key) if is_query else (key, query)
    assert token is not None
    return token_report(recording, heads, options, token, other_token, is_query=is_query)
