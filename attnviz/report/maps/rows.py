"""Turns a recording into a report of rows of weights: as arcs, or over the text or the image in which keys lie."""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from attnviz.base.arrays import BoolArray, FloatArray
from attnviz.base.errors import AttnvizError, option
from attnviz.maps.layer_maps import LayerMaps, mean_visible_key_counts
from attnviz.maps.recording import ChosenHead, Recording
from attnviz.media.image import Image
from attnviz.media.text import Text
from attnviz.report.maps.head_panels import drawn, head_panels
from attnviz.report.picture.colors import ColorScale
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions, limit_cells
from attnviz.report.picture.overlays import MAX_OVERLAID, band_tops, panel_image, with_scale_over_image
from attnviz.report.picture.panels import PERCENT, Axis, Heading, Panel, quantity_of, token_axis
from attnviz.report.picture.report import DrawnReport
from attnviz.report.picture.scales import pool_remarks, scale_remarks, share_scales
from attnviz.report.words.captions import (
    ARC_SIDES,
    Notes,
    count_phrase,
    group_title,
    head_heading,
    head_phrase,
    heads_caption,
    heads_phrase,
    largest_key_clause,
    model_name,
    numbered_token,
    quoted_token,
)
from attnviz.text.places import find_place
from attnviz.text.tokens import Tokens, is_padding

MAX_HEADS, MAX_ARC_TOKENS = 16, 120
MIN_PREFERENCE = (
    1.5  # if the largest weight is this many times uniform attention, smaller ones than uniform get no line
)
OUTLINED_SHARE = 0.6  # share of a row's weight on patches that the outline encloses (DINO, Caron et al. 2021)
# An image with less of the row's weight has no outline, nor one where the outline encloses more of the patches.
MIN_OUTLINED_WEIGHT, MAX_OUTLINED_PATCHES = 0.5, 0.3
MAX_OUTLINED_IMAGES = 12  # in more, which are small, lines would hide the colours of the patches
MAX_NEARLY_EVEN = 3.0  # times an even share of the weight: the largest weight of a head that looks nearly everywhere
MIN_MANY_KEYS = 49  # of fewer, three times an even share is much
MAX_IMAGES, MAX_SCREEN_IMAGES = 256, 12  # heads drawn where the user chose none: on a page, and on a screen
MEAN_OF_ALL = "the mean query"
MAX_NAMED_TOKENS = 3  # tokens without a place that a remark names


def arcs_report(recording: Recording, heads: list[ChosenHead], options: ReportOptions, notes: Notes) -> DrawnReport:
    """Returns the report of every head as lines from its queries to its keys."""
    refuse_undrawable(heads, options)
    panels = []
    for head in heads:
        heading = head_heading(recording, head, notes.get(head.key, ""))
        [panel] = head_panels(head, [PERCENT], limit_cells(options, MAX_ARC_TOKENS), heading)
        if panel.pooled:
            count = max(axis.edges[-1] - axis.edges[0] for axis in (panel.rows, panel.columns))
            raise AttnvizError(
                f"{option('style', 'arcs')} draws up to {MAX_ARC_TOKENS} tokens, not {count}; "
                f"use {option('queries', '0:40')} {option('keys', '0:40')}"
            )
        panels.append(panel)
    scaled_panels = _with_scale_from_uniform(share_scales(panels, with_linear_colors(options.look)), options.look)

    largest = scaled_panels[0].quantity.text(max(panel.peak for panel in scaled_panels))
    noun = scaled_panels[0].quantity.noun
    up_to = f", up to {largest}" if options.look.limits == "shared" else ""
    masked_remark = "" if all(panel.visible.all() for panel in scaled_panels) else " Masked pairs have no line."
    low = 0.0 if options.look.limits == "head" else scaled_panels[0].scale.low
    uniform = " (no preference)" if low > 0 and options.look.limits == "shared" else ""
    no_line = f" A {noun} of {scaled_panels[0].quantity.text(low)} or less{uniform} has no line." if low > 0 else ""
    strength = f"it is stronger for a larger {noun}{up_to}"
    arcs_remark = f"A line joins a query (left) to a key (right); {strength}.{no_line}{masked_remark}"
    return drawn(
        "arcs",
        recording,
        options.look,
        scaled_panels,
        heads_caption(recording, heads, panels, ARC_SIDES),
        (
            arcs_remark,
            *scale_remarks(options.look),
            *pool_remarks(options.look, scaled_panels),
        ),
    )


def refuse_undrawable(heads: list[ChosenHead], options: ReportOptions) -> None:
    """Raises AttnvizError for a table, for more than `MAX_HEADS` heads, or for heads that cannot be overlaid."""
    look = options.look
    style = option("query") if look.style is None else option("style", look.style)
    if look.overlaid:
        if not 2 <= len(heads) <= MAX_OVERLAID:
            example = option("heads", "0.3,1.2")
            raise AttnvizError(
                f"{style} draws 2 to {MAX_OVERLAID} heads, not {len(heads)}; choose some, such as {example}"
            )
        if len({(head.maps.query_tokens.labels, head.maps.key_tokens.labels) for head in heads}) > 1:
            raise AttnvizError(
                f"{style} needs heads over the same tokens; choose heads of one text and one kind of attention"
            )
    if len(heads) > MAX_HEADS and not options.medium.has_slides:
        example = option("heads", "0.3,1.2")
        raise AttnvizError(f"{style} draws up to {MAX_HEADS} heads, not {len(heads)}; choose some, such as {example}")


def _with_scale_from_uniform(panels: tuple[Panel, ...], look: Look) -> tuple[Panel, ...]:
    """Returns the panels with scales that begin at uniform attention, so that smaller weights get no line."""
    visible_counts = [
        panel.visible_key_counts.max()
        for panel in panels
        if panel.visible_key_counts is not None and panel.quantity.is_weight
    ]
    if look.limits != "shared" or len(visible_counts) < len(panels):
        return panels
    low = 1 / float(max(visible_counts))
    if max(panel.peak for panel in panels) < MIN_PREFERENCE * low:
        return panels
    return tuple(replace(panel, scale=replace(panel.scale, low=low)) for panel in panels)


def with_linear_colors(look: Look) -> Look:
    """Returns the look with linear colours, which tell strong lines and words apart; unchanged if it names others."""
    return replace(look, color_scale=look.color_scale or "linear")


def image_report(
    recording: Recording, heads: list[ChosenHead], options: ReportOptions, notes: Notes, combination: str = ""
) -> DrawnReport:
    """Returns the report of what one query looks at in an image, or in each of several, in every head that is drawn.

    If the head is a combination of heads, ``combination`` names it.
    """
    drawn_heads = heads
    max_heads = MAX_SCREEN_IMAGES if options.medium.fits is not None else MAX_IMAGES
    if not options.chooses_heads and not options.all and len(heads) > max_heads:
        last_layer = max(head.maps.layer for head in heads)
        drawn_heads = [head for head in heads if head.maps.layer == last_layer]
    queries = {head.maps: _image_query(head.maps.query_tokens, options.look.query) for head in drawn_heads}
    panels = [
        _image_panel(
            head,
            queries[head.maps],
            Heading(combination) if combination else head_heading(recording, head),
            group_title(recording, head.maps),
            image,
        )
        for head in drawn_heads
        for image in head.maps.key_tokens.image_indices
    ]
    if not options.medium.has_lines or len(panels) > MAX_OUTLINED_IMAGES:
        panels = [replace(panel, inside=None) for panel in panels]
    colored_panels = with_scale_over_image(share_scales(panels, options.look))
    names = {
        MEAN_OF_ALL if query is None else numbered_token(maps.query_tokens, query) for maps, query in queries.items()
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

    keys, kind = drawn_heads[0].maps.key_tokens, panel_image(panels[0]).kind
    image_remarks = []
    if len(drawn_heads) < len(heads):
        shown_layer = f"Showing layer {drawn_heads[0].maps.layer}"
        image_remarks.append(f"{shown_layer}; {option('all', True)} draws all {len(heads)} heads.")
    counts = [panel.visible_key_counts.max() for panel in panels if panel.visible_key_counts is not None]
    highest_lift = max((panel.peak for panel in panels), default=0.0) * float(max(counts, default=math.inf))
    has_many_keys = max(counts, default=0) >= MIN_MANY_KEYS
    if options.look.color_scale is None and has_many_keys and highest_lift < MAX_NEARLY_EVEN:
        image_remarks.append(
            f"Nearly even: no patch has more than {highest_lift:.1f} times an even share of the weight; "
            f"{option('color_scale', 'lift')} shows which have more."
        )
    are_outlined = [panel.inside is not None for panel in panels]
    if any(are_outlined):
        others = "" if all(are_outlined) else "; heads without a line look elsewhere, or nearly everywhere"
        outlined = f"The line encloses the fewest patches with {OUTLINED_SHARE:.0%} of the weight on patches"
        image_remarks.append(f"{outlined}{others}.")
    outside = np.flatnonzero(keys.medium < 0)
    if isinstance(keys.canvas, Image) and len(outside):  # with words, titles say how much weight is outside
        more = " …" if len(outside) > MAX_NAMED_TOKENS else ""
        examples = ", ".join(keys.labels[index] for index in outside[:MAX_NAMED_TOKENS]) + more
        image_remarks.append(f"Without a place in the {kind}: {examples} ({count_phrase(len(outside), 'tokens')}).")
    return drawn(
        "text",
        recording,
        options.look,
        colored_panels,
        f"What {subject} looks at in the {images}, in {heads_text} of {model_name(recording)}{largest_key}.",
        (drawing_remark, *band_remarks, *image_remarks, *scale_remarks(options.look)),
    )


def keys_of_patches(heads: list[ChosenHead], name: str | None) -> dict[LayerMaps, int] | None:
    """Returns the key that a name stands for in the maps of all heads; ``None`` unless patches look at keys elsewhere.

    No query has that name: the queries are patches, and the keys words, say.
    """
    keys = {}
    for maps in {head.maps for head in heads}:
        if name is None or not maps.query_tokens.image_indices or _place_or_none(maps.query_tokens, name) is not None:
            return None
        key = _place_or_none(maps.key_tokens, name, "key")
        if key is None:
            return None
        keys[maps] = key
    return keys


def _place_or_none(tokens: Tokens, name: str, role: str = "query") -> int | None:
    try:
        return find_place(tokens, name, role)[0]
    except AttnvizError:
        return None


def onlookers_report(
    recording: Recording, heads: list[ChosenHead], options: ReportOptions, keys: Mapping[LayerMaps, int]
) -> DrawnReport:
    """Returns the report of how much each patch of an image looks at one key, such as a word, in every head."""
    is_one_head = len({head.name for head in heads}) == 1  # then its texts, such as steps, fill the rows
    panels = [
        _onlookers_panel(
            head,
            keys[head.maps],
            head_heading(recording, head),
            "" if is_one_head else group_title(recording, head.maps),
            image,
        )
        for head in sorted(heads, key=lambda head: head.maps.item)  # the heads of a text beside each other
        for image in head.maps.query_tokens.image_indices
    ]
    names = {numbered_token(maps.key_tokens, key) for maps, key in keys.items()}
    subject, kind = " or ".join(sorted(names)), panel_image(panels[0]).kind
    heads_text = heads_phrase(heads) if len(heads) > 1 else head_phrase(recording, heads[0])
    means = "Colours show" if options.medium.has_colors else "Shades show"
    remark = f"{means} how much each patch of the {kind} looks at {subject}: the weights of many queries, not of one."
    return drawn(
        "text",
        recording,
        options.look,
        with_scale_over_image(share_scales(panels, options.look)),
        f"What looks at {subject} in the {kind}, in {heads_text} of {model_name(recording)}"
        f"{largest_key_clause(panels)}.",
        (remark, *scale_remarks(options.look)),
    )


def _onlookers_panel(head: ChosenHead, key: int, heading: Heading, group: str, image: int) -> Panel:
    """Returns the panel of the weights on one key over the image in which the queries have places, without colours."""
    maps, queries, column = head.maps, head.queries, slice(key, key + 1)
    count = queries.stop - queries.start
    if maps.resolution(queries, column)[0] < count:
        raise AttnvizError(
            f"head {head.name} was recorded in blocks of patches; record it again with {option('dense', True)}"
        )
    overview = maps.overview((head.head,), count, 1, queries, column, maximum=False)
    over_image = with_places_in(maps.query_tokens, image)
    return Panel(
        heading=heading,
        values=overview.mean[0].T,
        visible=overview.visible.T & (over_image.medium[queries] >= 0),
        rows=token_axis("keys", maps.key_tokens, column, 1),
        columns=token_axis("queries", over_image, queries, count, across=True),
        quantity=quantity_of(maps, PERCENT),
        scale=ColorScale(0, 1),
        group=group,
    )


def _image_query(tokens: Tokens, name: str | None) -> int | None:
    """Returns the index of the query that a label, a number or a pixel such as ``@420,180`` names.

    Returns:
        The index; ``None`` for the mean of all queries. The default is the last token if there are words too, the last
        object that was found, the first token if it has no place (``[CLS]``), else the mean of all.
    """
    if name is None and (tokens.text or not tokens.image_indices):
        ordinary = np.flatnonzero(~tokens.special)
        return int(ordinary[-1]) if len(ordinary) and not tokens.text else len(tokens) - 1
    if name is None:
        return 0 if tokens.medium[0] < 0 and not is_padding(tokens, 0) else None
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


def with_places_in(tokens: Tokens, image: int) -> Tokens:
    """Returns the tokens with places in one image alone; tokens outside of it have no place."""
    if len(tokens.media) == 1:
        return tokens
    medium = np.where(tokens.medium == image, 0, -1)
    places = np.where(medium[:, None] >= 0, tokens.places, 0)
    return replace(tokens, media=(tokens.media[image],), medium=medium, places=places)


def _image_panel(head: ChosenHead, query: int | None, heading: Heading, group: str, image: int) -> Panel:
    """Returns the panel of one query's weights over an image, with other keys masked, without colours."""
    maps = head.maps
    queries = head.queries if query is None else slice(query, query + 1)
    key_count = head.keys.stop - head.keys.start
    if maps.resolution(queries, head.keys)[1] < key_count:
        raise AttnvizError(
            f"head {head.name} was recorded in blocks of patches; record it again with {option('dense', True)}"
        )
    overview = maps.overview((head.head,), 1, key_count, queries, head.keys, maximum=False)
    over_image = with_places_in(maps.key_tokens, image)
    columns = token_axis("keys", over_image, head.keys, key_count, across=True)
    in_image = over_image.medium[head.keys] >= 0
    visible = overview.visible & in_image
    values = overview.mean[0]
    image_weights = np.where(visible, np.nan_to_num(values), 0)[0]
    # The query has a place in this image if it is a patch of it; the mean of all has none.
    media = maps.query_tokens.media
    queried_image = next((i for i in maps.query_tokens.image_indices if media[i] is over_image.canvas), None)
    query_tokens = maps.query_tokens if queried_image is None else with_places_in(maps.query_tokens, queried_image)
    rows = Axis("queries", (MEAN_OF_ALL,), (queries.start, queries.start + 1), canvas=query_tokens.canvas)
    if query is not None:
        rows = token_axis("queries", query_tokens, queries, 1)
    visible_counts = (
        mean_visible_key_counts(maps, head.head, (queries.start, queries.stop)) if maps.quantity == "weight" else None
    )
    query_weights = np.where(overview.visible, np.nan_to_num(values), 0)[0]
    inside = None
    if image_weights.sum() > (MIN_OUTLINED_WEIGHT * query_weights.sum() if maps.quantity == "weight" else 0):
        inside = mass_mask(image_weights)
        inside = inside if inside.sum() <= math.ceil(MAX_OUTLINED_PATCHES * visible.sum()) else None
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
        inside=inside,
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
    word_weights = np.where(tokens.in_image[keys], 0, row)
    if round(word_weights.sum(), 2) == 0:
        return image_share
    best_word = quoted_token(labels[int(word_weights.argmax())])
    return f"{image_share}, {word_weights.sum():.0%} on words, most on {best_word}"
