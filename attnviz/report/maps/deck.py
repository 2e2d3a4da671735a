"""Chooses the slides of a deck: all heads on one, then a slide for each of the clearest, or for each one asked for.

A slide of a single head has a sentence for its title, which says what the picture shows and no more.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby

import numpy as np

from attnviz.base.errors import AttnvizError, option
from attnviz.maps.layer_maps import LayerMaps
from attnviz.maps.recording import ChosenHead, Recording
from attnviz.media.image import Image
from attnviz.metrics.patterns import MIXED, UNIFORM, Pattern, quoted_word
from attnviz.report.maps.head_panels import HeadSummaries, answering_first
from attnviz.report.maps.heatmaps import Ranking, shows_images
from attnviz.report.maps.rows import (
    MAX_HEADS,
    MAX_NEARLY_EVEN,
    MEAN_OF_ALL,
    MIN_MANY_KEYS,
    MIN_OUTLINED_WEIGHT,
    keys_of_patches,
)
from attnviz.report.maps.text_rows import token_report
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.overlays import panel_image
from attnviz.report.picture.panels import Panel
from attnviz.report.picture.report import Chapter, DrawnReport
from attnviz.report.picture.structure import RowOfHeads, quoted, row_of_last_token
from attnviz.report.words.captions import (
    PATCH,
    count_of_heads,
    head_heading,
    heads_phrase,
    item_noun,
    largest_weight_sentence,
    maps_suffix,
    named_cell,
    numbered_token,
    texts_phrase,
)
from attnviz.text.places import find_place

MAX_NOTED_PICTURES = 4  # on one slide; the titles of more have space for the names of heads alone
MAX_UNASKED_SLIDES = 6  # of single heads, where the user asked for none
MAX_SMALL_SHARE = 0.2  # a title says how many times an even share a smaller share is
# What a title says of a pattern's share of the weight. The shares of patterns of repeats are of repeated tokens alone.
OF_PATTERNS = {
    "previous token": "on the previous token",
    "next token": "on the next token",
    "own token": "on the token itself",
    "other sentence": "on the other sentence",
    "own sentence": "within the sentence",
    "local": "on tokens nearby",
    "sink": "on one token",
}
OF_REPEATS = {
    "induction": "what followed them before",
    "duplicate token": "their earlier copies",
}

Draw = Callable[[Ranking, ReportOptions], DrawnReport]


def on_one_slide(options: ReportOptions) -> ReportOptions:
    """Returns the options of one slide, which shows what a figure of its size does."""
    look = replace(options.look, size=options.look.size or "16:9")
    return replace(options, look=look, medium=replace(options.medium, one_page=True, has_slides=False))


def with_brief_titles(report: DrawnReport) -> DrawnReport:
    """Returns a slide of many pictures without the notes in their titles, which would be cut."""
    if report.kind != "text" or len(report.panels) <= MAX_NOTED_PICTURES:
        return report
    panels = tuple(replace(panel, heading=replace(panel.heading, note="")) for panel in report.panels)
    return replace(report, panels=panels)


def max_slides(options: ReportOptions, head_count: int) -> int:
    """Returns how many heads have slides of their own: those that the user chose, else a few if not all."""
    is_whole = options.chooses_heads or options.top is not None or options.all
    return head_count if is_whole else min(MAX_UNASKED_SLIDES * options.look.per_slide, head_count)


def with_slides(
    report: DrawnReport,
    overviews: Sequence[Chapter],
    sentences: Iterable[str],
    shown: Sequence[ChosenHead],
    heads: Sequence[ChosenHead],
) -> DrawnReport:
    """Returns a report of heads whose story are its slides: those of all heads, then as many on each as the look asks.

    ``sentences`` are the titles of slides of one head each, of those that are shown of all heads.
    """
    look = report.look
    panels_of_heads = [tuple(panels) for _, panels in groupby(report.panels, lambda panel: panel.heading.head)]
    titles = list(sentences) if look.per_slide == 1 else []
    slides = list(overviews)
    for start in range(0, len(panels_of_heads), look.per_slide):
        part = replace(report, panels=sum(panels_of_heads[start : start + look.per_slide], ()), summary=None)
        slides.append(Chapter(titles[start] if titles else "", part, names_heads=True))
    report = replace(report, story=tuple(slides))
    if len(shown) == len(heads):
        return report
    examples = ",".join(head.name for head in shown[:2])
    advice = f"{option('all', True)} gives every head a slide, {option('heads', examples)} those that you name."
    count = f"{count_of_heads(shown)} of the {count_of_heads(heads)} heads"
    item = "" if count_of_heads(heads) == len(heads) else f", for one {item_noun([head.maps for head in heads])} each"
    caption = f"{report.caption} {count} have slides of their own{item}."
    return replace(report, caption=caption, advice=look.format_options(advice))


def deck_report(
    recording: Recording, draw: Draw, ranking: Ranking, options: ReportOptions, summaries: HeadSummaries | None
) -> DrawnReport:
    """Returns the report of a deck, whose story are its slides; ``draw`` returns the report of some heads.

    Heads that the user chose have a slide each, as all have with ``all``. Else all heads come first on one slide, then
    the clearest on slides of their own: of a query those that it tells apart, over a picture those that look most at
    patches of their own.
    """
    look = options.look
    if look.overlaid:  # one picture of all of them
        return draw(ranking, options)
    patterns = {}
    if summaries is not None:
        patterns = {head.key: row.patterns for head, row in zip(summaries.heads, summaries.frame.rows, strict=True)}
    overviews, shown = [], ranking
    if not (options.chooses_heads or options.top is not None) and len(ranking) > look.per_slide:
        # Of a causal text in which no head does anything clear, the row says more than maps do.
        row = row_of_last_token([head for head, _ in ranking]) if patterns and look.style is None else None
        if row is not None and look.drawn_style == "heatmap" and set(patterns.values()) == {(MIXED,)}:
            look = replace(look, query=f"@{row.query}")
            options = replace(options, look=look)
        overviews = _overviews(recording, draw, ranking, options)
        count = max_slides(options, len(ranking))
        if count < len(ranking):
            shown = _clearest_first(recording, ranking, options, summaries, overviews[0].report.panels)[:count]
    report = draw(shown, options)
    if overviews:
        first = overviews[0].report
        report = replace(report, caption=first.caption, answer=first.answer)
    heads = [head for head, _ in ranking]
    panels = [list(group) for _, group in groupby(report.panels, lambda panel: panel.heading.head)]
    sentences = [
        _row_sentence(head, of_head)
        if report.kind == "text"
        else _pattern_sentence(of_head[0], patterns.get(head.key, ()), head.maps)
        for (head, _), of_head in zip(shown, panels, strict=True)
    ]
    return with_slides(report, overviews, sentences, [head for head, _ in shown], heads)


def _overviews(recording: Recording, draw: Draw, ranking: Ranking, options: ReportOptions) -> list[Chapter]:
    """Returns the slide of all heads; of what a word looks at in many of them a row for each, a slide for each text."""
    look, heads = options.look, [head for head, _ in ranking]
    is_of_word = (
        look.drawn_style == "text" and not shows_images(heads, options) and not keys_of_patches(heads, look.query)
    )
    if is_of_word and len(heads) > MAX_HEADS:
        slides = []
        by_text = sorted(heads, key=lambda head: head.maps.item)
        for _, group in groupby(by_text, key=lambda head: head.maps.item):
            of_text = list(group)
            query = _query_of(of_text[0], options)
            row = RowOfHeads.of(of_text, query, sets_apart=not options.chooses_keys)
            report = token_report(recording, of_text, on_one_slide(options), query)
            answer = "" if row is None else row.text()
            report = replace(report, answer=answer, remarks=(*filter(None, [answer]), *report.remarks))
            maps = of_text[0].maps
            where = f"in each of {len(of_text)} heads{maps_suffix(recording, maps)}"
            title = f"What {numbered_token(maps.query_tokens, query)} looks at {where}"
            slides.append(Chapter(title, report, names_heads=True))
        return slides
    # Lines and numbers of many heads are legible on no slide.
    draws_lines = look.drawn_style == "arcs" and len(ranking) > MAX_HEADS
    all_look = replace(look, style=None, limits="shared") if draws_lines else look
    report = with_brief_titles(draw(ranking, on_one_slide(replace(options, look=all_look, table=None))))
    subjects = {_subject(panel) for panel in report.panels} if report.kind == "text" else set()
    subject = subjects.pop() if len(subjects) == 1 else "each token"
    title = f"What {subject} looks at in {heads_phrase(heads)}{texts_phrase(heads)}"
    return [Chapter(title if report.panels[0].rows.name == "queries" else "", report, names_heads=True)]


def _query_of(head: ChosenHead, options: ReportOptions) -> int:
    """Returns the query that the user names, else the last one."""
    tokens, name = head.maps.query_tokens, options.look.query
    return tokens.unpadded.stop - 1 if name is None else find_place(tokens, name)[0]


def _clearest_first(
    recording: Recording,
    ranking: Ranking,
    options: ReportOptions,
    summaries: HeadSummaries | None,
    panels: Sequence[Panel],
) -> Ranking:
    """Returns the heads as a terminal chooses them; those that the user sorted stay in their order.

    Over a picture, where ``panels`` draw the heads, the strongest head of each patch comes first, then the second ones.
    """
    if options.sort is not None:
        return ranking
    heads, keys = [head for head, _ in ranking], []
    if isinstance(panels[0].columns.canvas, Image) and not heads[0].maps.key_tokens.text:
        counts: Counter[int | str] = Counter()  # of patches, and of parts of the picture, at which heads before look
        ranks: dict[str, tuple[int, int, int]] = {}
        strongest = [(*_strongest_patch(panel), panel) for panel in panels]
        for _, patch, panel in sorted(strongest, key=lambda entry: -entry[0]):
            name = panel.heading.name
            if name not in ranks:
                part = named_cell(panel.columns, patch).split(" (")[0]
                ranks[name] = counts[patch], counts[part], len(ranks)
                counts.update((patch, part))
        names = {head.key: head_heading(recording, head).name for head in heads}
        drawn = [key for key, name in names.items() if name in ranks]  # of very many heads those of the last layer
        keys = sorted(drawn, key=lambda key: ranks[names[key]])
    elif options.look.drawn_style == "text" or shows_images(heads, options):
        with suppress(AttnvizError):  # of a key at which patches look, which is no query
            row = RowOfHeads.of(heads, _query_of(heads[0], options), sets_apart=not options.chooses_keys)
            keys = [] if row is None else [heads[index].key for index in row.telling_heads]
    elif summaries is not None:
        keys = [head.key for head in summaries.clearest]
    values, maps_of_heads = {head.key: value for head, value in ranking}, Counter[str]()
    ordered = []
    for head in answering_first(heads, keys):  # the first map of each head, then the second ones, of other texts
        ordered.append((maps_of_heads[head.name], head))
        maps_of_heads[head.name] += 1
    return [(head, values[head.key]) for _, head in sorted(ordered, key=lambda entry: entry[0])]


def _subject(panel: Panel) -> str:
    """Returns the words for the only query of a panel."""
    is_mean = panel.rows.labels[0] == MEAN_OF_ALL
    return MEAN_OF_ALL if is_mean else named_cell(panel.rows, 0, PATCH, quoted)


def _strongest_patch(panel: Panel) -> tuple[float, int]:
    """Returns how many times an even share the largest weight over a picture is, and the column of its patch."""
    weights = np.where(panel.visible, np.nan_to_num(panel.values), 0)[0]
    patch = int(weights.argmax())
    return float(weights[patch] * panel.key_counts.max()), patch


def _row_sentence(head: ChosenHead, panels: Sequence[Panel]) -> str:
    """Returns what one query looks at in a head; "" for a text in excerpts, for several queries and for no weights.

    Several panels are of several pictures, beside which words and registers may be looked at.
    """
    panel, tokens = panels[0], head.maps.key_tokens
    is_over_image = isinstance(panel.columns.canvas, Image)
    is_whole = not panel.pooled and (is_over_image or len(panels) == 1)
    if not is_whole or not panel.quantity.is_weight or panel.rows.name != "queries":
        return ""
    begin = f"In {panel.heading.head}, {_subject(panel)} looks"
    row = np.nan_to_num(panel.values[0])
    on_images = sum(row[panel.visible[0]].sum() for panel in panels if is_over_image)
    key_count = panel.key_counts.max()
    is_on_images = on_images >= MIN_OUTLINED_WEIGHT and key_count >= MIN_MANY_KEYS
    if is_on_images and max(_strongest_patch(panel)[0] for panel in panels) < MAX_NEARLY_EVEN:
        return f"{begin} nearly evenly at the {panel_image(panel).kind}"

    def place(key: int) -> str:
        panel = next((panel for panel in panels if panel.visible[0, key]), panels[0])
        words = f"{named_cell(panel.columns, key, quote=quoted_word)}: {panel.quantity.text(row[key])}"
        is_small = is_over_image and row[key] < MAX_SMALL_SHARE
        return f"{words}, {row[key] * key_count:.0f} times an even share" if is_small else words

    first, *others = np.argsort(-row, kind="stable").tolist()
    token = panel.columns.edges[first]
    is_rest = tokens.special[token] or (token == 0 and not tokens.in_image[token])  # on which many heads rest
    return f"{begin} most at {place(first)}{f', then {place(others[0])}' if is_rest and others else ''}"


def _pattern_sentence(panel: Panel, patterns: Sequence[Pattern], maps: LayerMaps) -> str:
    """Returns what a head does with its weight, as far as its patterns are clear; "" for a head with another note."""
    if not patterns:
        return "" if panel.heading.note else largest_weight_sentence(panel, maps)
    first, name = patterns[0], f"Head {panel.heading.name}"
    if first.name == UNIFORM.name:
        return f"{name} looks nearly evenly at all that it sees"
    if first.name in OF_REPEATS:
        return f"{name} looks from repeated tokens to {OF_REPEATS[first.name]}: {first.value:.0%}"
    # Largest first, so that no title begins with what is beside a sink.
    shares = sorted(
        (pattern for pattern in patterns if pattern.name in OF_PATTERNS), key=lambda each: -(each.value or 0)
    )
    places = [
        f"{pattern.value:.0%}{' of its weight' if not number else ''} "
        f"{f'on {quoted_word(pattern.token)}' if pattern.token else OF_PATTERNS[pattern.name]}"
        for number, pattern in enumerate(shares)
    ]
    return f"{name} puts {' and '.join(places)}" if places else largest_weight_sentence(panel, maps)
