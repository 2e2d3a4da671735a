"""Turns a recording of an image into a report of what one query, or the mean of all, looks at in every head."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from attnviz.base.arrays import BoolArray, FloatArray
from attnviz.base.errors import AttnvizError, option
from attnviz.maps.heads import ChosenHead
from attnviz.maps.layer_maps import mean_visible_key_counts
from attnviz.maps.recording import Recording
from attnviz.media.image import Image
from attnviz.media.text import Text
from attnviz.report.picture.colors import ColorScale
from attnviz.report.picture.numbers import origin
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.overlays import band_tops, panel_image
from attnviz.report.picture.panels import PERCENT, Axis, Heading, Panel, quantity_of, token_axis
from attnviz.report.picture.report import ShadedText
from attnviz.report.picture.scales import scale_remarks, share_scales
from attnviz.report.words.captions import (
    Notes,
    count_phrase,
    group_title,
    head_heading,
    head_phrase,
    heads_phrase,
    largest_key_clause,
    model_name,
    quoted_token,
    recording_remarks,
    report_title,
)
from attnviz.text.places import find_place
from attnviz.text.tokens import Tokens

OUTLINED_SHARE = 0.6  # share of a row's weight on patches that the outline encloses (DINO, Caron et al. 2021)
MAX_IMAGES, MAX_SCREEN_IMAGES = 256, 12  # heads drawn where the user chose none: on a page, and on a screen
MEAN_OF_ALL = "the mean query"
MAX_NAMED_TOKENS = 3  # tokens without a place that a remark names


def image_report(
    recording: Recording, heads: list[ChosenHead], options: ReportOptions, notes: Notes, combination: str = ""
) -> ShadedText:
    """Returns the report of what one query looks at in an image, or in each of several, in every head that is drawn.

    If the head is a combination of heads, ``combination`` names it.

    Raises:
        AttnvizError: if the query does not exist, or a head was recorded in blocks of patches.
    """
    drawn_heads = _heads_to_draw(heads, options)
    queries = {head.maps: _image_query(head.maps.query_tokens, options.look.query) for head in drawn_heads}
    panels = [
        _panel(
            head,
            queries[head.maps],
            Heading(combination) if combination else head_heading(recording, head),
            group_title(recording, head.maps),
            image,
        )
        for head in drawn_heads
        for image in head.maps.key_tokens.image_indices
    ]
    if not options.medium.has_lines:
        panels = [replace(panel, inside=None) for panel in panels]
    colored_panels = share_scales(panels, options.look)
    names = {
        MEAN_OF_ALL if query is None else f"{quoted_token(maps.query_tokens.labels[query])} ({query})"
        for maps, query in queries.items()
    }
    heads_text = heads_phrase(drawn_heads) if len(drawn_heads) > 1 else head_phrase(recording, drawn_heads[0])
    if combination:
        heads_text = f"the {combination}"
    subject = " or ".join(sorted(names))
    largest_key = largest_key_clause(panels)
    images = f"{panel_image(panels[0]).kind}{'s' if len(panels) > len(drawn_heads) else ''}"
    if options.medium.has_colors:
        drawing_remark = f"Colours show what {subject} looks at, over the {images} in grey."
    else:
        are_hidden = "are" if images.endswith("s") else "is"
        drawing_remark = f"Shades show what {subject} looks at; without colours, the {images} {are_hidden} not drawn."
    tops = band_tops(panels[0])  # of a spectrogram
    band_remarks = [f"Time runs to the right; bands rise from b0 to b{len(tops) - 1}."] if len(tops) else []
    return ShadedText(
        title=report_title(recording, options.look),
        panels=colored_panels,
        caption=f"What {subject} looks at in the {images}, in {heads_text} of {model_name(recording)}{largest_key}.",
        remarks=(
            drawing_remark,
            *band_remarks,
            *_remarks(heads, drawn_heads, panels),
            *scale_remarks(options.look),
            *recording_remarks(recording),
        ),
        look=options.look,
        about={"recording": origin(recording)},
    )


def _image_query(tokens: Tokens, name: str | None) -> int | None:
    """Returns the index of the query that a label, a number or a pixel such as ``@420,180`` names.

    Returns:
        The index; ``None`` for the mean of all queries. The default is the last token if there are words too, the first
        one if it has no place (``[CLS]``), else the mean of all.

    Raises:
        AttnvizError: if there is no such query, or no patch at the pixel.
    """
    if name is None and not isinstance(tokens.canvas, Image):
        return len(tokens) - 1
    if name is None:
        return 0 if tokens.medium[0] < 0 else None
    return find_place(tokens, name)[0]


def mass_mask(row: FloatArray, share: float = OUTLINED_SHARE) -> BoolArray:
    """Returns ``(patches,)``, True for the fewest patches that hold at least this share of a row's weight.

    The rule is that of ``visualize_attention.py`` of DINO (Caron et al. 2021): the smallest weights are left out while
    their sum is at most 1 − share.
    """
    order = np.argsort(row, kind="stable")
    are_inside = np.cumsum(row[order] / row.sum()) > 1 - share
    inside = np.zeros(len(row), dtype=bool)
    inside[order[are_inside]] = True
    return inside


def _heads_to_draw(heads: list[ChosenHead], options: ReportOptions) -> list[ChosenHead]:
    """Returns the heads to draw: all, or those of the last layer if they are many and the user chose none."""
    user_selected = options.selection.heads is not None or options.selection.pairs is not None
    max_heads = MAX_SCREEN_IMAGES if options.medium.fits is not None else MAX_IMAGES
    if user_selected or options.all or len(heads) <= max_heads:
        return heads
    last = max(head.maps.layer for head in heads)
    return [head for head in heads if head.maps.layer == last]


def _with_places_in(tokens: Tokens, image: int) -> Tokens:
    """Returns the tokens with places in one image alone; tokens outside of it have no place."""
    if len(tokens.media) == 1:
        return tokens
    medium = np.where(tokens.medium == image, 0, -1)
    places = np.where(medium[:, None] >= 0, tokens.places, 0)
    return replace(tokens, media=(tokens.media[image],), medium=medium, places=places)


def _panel(head: ChosenHead, query: int | None, heading: Heading, group: str, image: int) -> Panel:
    """Returns the panel of one query's weights over an image, with other keys masked, without colours."""
    maps = head.maps
    queries = head.queries if query is None else slice(query, query + 1)
    key_count = head.keys.stop - head.keys.start
    if maps.resolution(queries, head.keys)[1] < key_count:
        raise AttnvizError(
            f"head {head.name} was recorded in blocks of patches; record it again with {option('dense', True)}"
        )
    overview = maps.overview((head.head,), 1, key_count, queries, head.keys, maximum=False)
    over_image = _with_places_in(maps.key_tokens, image)
    columns = token_axis("keys", over_image, head.keys, key_count, across=True)
    in_image = over_image.medium[head.keys] >= 0
    visible = overview.visible & in_image
    values = overview.mean[0]
    image_weights = np.where(visible, np.nan_to_num(values), 0)[0]
    # The query has a place in this image if it is a patch of it; the mean of all has none.
    media = maps.query_tokens.media
    queried_image = next((i for i in maps.query_tokens.image_indices if media[i] is over_image.canvas), None)
    query_tokens = maps.query_tokens if queried_image is None else _with_places_in(maps.query_tokens, queried_image)
    rows = Axis("queries", (MEAN_OF_ALL,), (queries.start, queries.start + 1), canvas=query_tokens.canvas)
    if query is not None:
        rows = token_axis("queries", query_tokens, queries, 1)
    visible_counts = (
        mean_visible_key_counts(maps, head.head, (queries.start, queries.stop)) if maps.quantity == "weight" else None
    )
    query_weights = np.where(overview.visible, np.nan_to_num(values), 0)[0]
    shows_share = maps.quantity == "weight" and not in_image.all()
    image_share = _share_text(query_weights, maps.key_tokens, head.keys, image) if shows_share else ""
    return Panel(
        heading=replace(heading, note=image_share),
        values=values,
        visible=visible,
        rows=rows,
        columns=columns,
        quantity=quantity_of(maps, PERCENT),
        scale=ColorScale(0, 1),
        group=group,
        visible_key_counts=None if visible_counts is None else visible_counts.astype(np.float32),
        inside=mass_mask(image_weights) if image_weights.sum() > 0 else None,
    )


def _share_text(row: FloatArray, tokens: Tokens, keys: slice, image: int) -> str:
    """Returns text on the share of a row on an image; with words, also on their share and the word with most weight."""
    medium, labels, images = tokens.medium[keys], tokens.labels[keys], tokens.image_indices
    image_number = f" {images.index(image) + 1}" if len(images) > 1 else ""
    share = row[medium == image].sum()
    drawn_image = tokens.media[image]
    assert isinstance(drawn_image, Image)
    image_share = f"{share:.0%} on {drawn_image.kind}{image_number}"
    if isinstance(tokens.canvas, Image):
        return image_share
    if not any(isinstance(tokens.media[index], Text) for index in np.unique(medium[medium >= 0]).tolist()):
        return image_share
    word_weights = np.where(np.isin(medium, images), 0, row)
    if round(word_weights.sum(), 2) == 0:
        return image_share
    best_word = quoted_token(labels[int(word_weights.argmax())])
    return f"{image_share}, {word_weights.sum():.0%} on words, most on {best_word}"


def _remarks(heads: list[ChosenHead], drawn_heads: list[ChosenHead], panels: Sequence[Panel]) -> tuple[str, ...]:
    """Returns the remarks on heads that are not drawn, on what the outline encloses, and on tokens without a place."""
    keys = drawn_heads[0].maps.key_tokens
    has_words = not isinstance(keys.canvas, Image)  # then the title of each head says how much weight is outside
    labels_outside = [] if has_words else [keys.labels[index] for index in np.flatnonzero(keys.medium < 0)]
    kind = panel_image(panels[0]).kind
    layer_remark = f"Showing layer {drawn_heads[0].maps.layer}; {option('all', True)} draws all {len(heads)} heads."
    outline_remark = f"The line encloses the fewest patches with {OUTLINED_SHARE:.0%} of the weight on patches."
    examples = f"{', '.join(labels_outside[:MAX_NAMED_TOKENS])}{' …' if len(labels_outside) > MAX_NAMED_TOKENS else ''}"
    return (
        *((layer_remark,) if len(drawn_heads) < len(heads) else ()),
        *((outline_remark,) if any(panel.inside is not None for panel in panels) else ()),
        *(
            (f"Without a place in the {kind}: {examples} ({count_phrase(len(labels_outside), 'tokens')}).",)
            if labels_outside
            else ()
        ),
    )
