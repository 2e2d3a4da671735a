"""Chooses the slides of a deck: all heads on one, then a slide for each of the clearest, or for each one asked for.

A slide of a single head has a sentence for its title, which says what the picture shows and no more.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby

import numpy as np

from attnviz.base.arrays import Float64Array
from attnviz.base.errors import AttnvizError, option
from attnviz.maps.recording import ChosenHead, Recording
from attnviz.media.image import Image
from attnviz.metrics.patterns import UNIFORM, Pattern, quoted_word
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
from attnviz.report.picture.panels import Panel
from attnviz.report.picture.report import Chapter, DrawnReport
from attnviz.report.picture.structure import RowOfHeads, quoted
from attnviz.report.words.captions import (
    count_of_heads,
    head_heading,
    heads_phrase,
    maps_suffix,
    numbered_token,
    texts_phrase,
)
from attnviz.text.places import find_place

MAX_NOTED_PICTURES = 4  # on one slide; the titles of more have space for the names of heads alone
MAX_UNASKED_SLIDES = 6  # of single heads, where the user asked for none
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


def has_overview(options: ReportOptions, head_count: int) -> bool:
    """True if a slide of all heads comes first: the user chose none, and one slide does not show them anyway."""
    return not (options.chooses_heads or options.top is not None) and head_count > options.look.per_slide


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
    noun = "heads" if count_of_heads(heads) == len(heads) else "maps"  # of several texts
    examples = ",".join(head.name for head in shown[:2])
    advice = f"{option('all', True)} gives every head a slide, {option('heads', examples)} those that you name."
    caption = f"{report.caption} {len(shown)} of the {len(heads)} {noun} have slides of their own."
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
    overviews, shown = [], ranking
    if has_overview(options, len(ranking)):
        overviews = _overviews(recording, draw, ranking, options)
        count = max_slides(options, len(ranking))
        if count < len(ranking):
            shown = _clearest_first(recording, ranking, options, summaries, overviews[0].report.panels)[:count]
    report = draw(shown, options)
    if overviews:
        first = overviews[0].report
        report = replace(report, caption=first.caption, answer=first.answer)
    heads = [head for head, _ in ranking]
    patterns = {}
    if summaries is not None:
        patterns = {head.key: row.patterns for head, row in zip(summaries.heads, summaries.frame.rows, strict=True)}
    panels = [list(group) for _, group in groupby(report.panels, lambda panel: panel.heading.head)]
    sentences = [
        _row_sentence(head, of_head)
        if report.kind == "text"
        else _pattern_sentence(of_head[0], patterns.get(head.key, ()))
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
            row = _row_of(of_text, options)
            query = _query_of(of_text[0], options)
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
    labels = {panel.rows.labels for panel in report.panels} if report.kind == "text" else set()
    subject = quoted(labels.pop()[0]) if len(labels) == 1 else "each token"
    title = f"What {subject} looks at in {heads_phrase(heads)}{texts_phrase(heads)}"
    return [Chapter(title if report.panels[0].rows.name == "queries" else "", report, names_heads=True)]


def _query_of(head: ChosenHead, options: ReportOptions) -> int:
    """Returns the query that the user names, else the last one."""
    tokens, name = head.maps.query_tokens, options.look.query
    return tokens.unpadded.stop - 1 if name is None else find_place(tokens, name)[0]


def _row_of(heads: Sequence[ChosenHead], options: ReportOptions) -> RowOfHeads | None:
    return RowOfHeads.of(heads, _query_of(heads[0], options), sets_apart=not options.chooses_keys)


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
        lifts: dict[str, tuple[float, int]] = {}  # of the patch with the largest weight in each head, and the patch
        for panel in panels:
            lifts[panel.heading.name] = max(_strongest_patch(panel), lifts.get(panel.heading.name, (0.0, 0)))
        heads_of_patch: Counter[int] = Counter()
        ranks = {}
        for name, (lift, patch) in sorted(lifts.items(), key=lambda entry: -entry[1][0]):
            ranks[name] = heads_of_patch[patch], -lift
            heads_of_patch[patch] += 1
        names = {head.key: head_heading(recording, head).name for head in heads}
        drawn = [key for key, name in names.items() if name in ranks]  # of very many heads those of the last layer
        keys = sorted(drawn, key=lambda key: ranks[names[key]])
    elif options.look.drawn_style == "text" or shows_images(heads, options):
        with suppress(AttnvizError):  # of a key at which patches look, which is no query
            row = _row_of(heads, options)
            keys = [] if row is None else [heads[index].key for index in row.telling_heads]
    elif summaries is not None:
        keys = [head.key for head in summaries.clearest]
    values = {head.key: value for head, value in ranking}
    return [(head, values[head.key]) for head in answering_first(heads, keys)]


def _seen_row(panel: Panel) -> Float64Array:
    """Returns the weights of the only query of a panel, ``(keys,)``, 0 where it sees none."""
    row: Float64Array = np.where(panel.visible, np.nan_to_num(panel.values), 0)[0]
    return row


def _strongest_patch(panel: Panel) -> tuple[float, int]:
    """Returns how many times an even share the largest weight over a picture is, and the column of its patch."""
    weights = _seen_row(panel)
    patch = int(weights.argmax())
    seen = 1.0 if panel.visible_key_counts is None else float(panel.visible_key_counts.max())
    return float(weights[patch]) * seen, patch


def _row_sentence(head: ChosenHead, panels: Sequence[Panel]) -> str:
    """Returns what one query looks at in a head; "" for a text in excerpts, for several pictures and for no weights."""
    [panel, *other_panels] = panels
    if other_panels or panel.pooled or not panel.quantity.is_weight or panel.rows.name != "queries":
        return ""
    label, name, columns = panel.rows.labels[0], panel.heading.head, panel.columns
    if isinstance(columns.canvas, Image):
        query = label if label == MEAN_OF_ALL else quoted(label)
        on_image = _seen_row(panel).sum()
        if panel.visible_key_counts is not None and on_image >= MIN_OUTLINED_WEIGHT and not head.maps.key_tokens.text:
            lift, patch = _strongest_patch(panel)
            if panel.visible_key_counts.max() >= MIN_MANY_KEYS and lift < MAX_NEARLY_EVEN:
                return f"In {name}, {query} looks nearly evenly at the {columns.canvas.kind}"
            times = f"{lift:.0f}" if lift >= MAX_NEARLY_EVEN else f"{lift:.1f}"
            share = f"{panel.quantity.text(panel.values[0, patch])}, {times} times an even share"
            return f"In {name}, {query} looks most at {quoted(columns.labels[patch])}: {share}"
        return f"What {query} looks at in {name}{': ' * bool(panel.heading.note)}{panel.heading.note}"
    weights = _seen_row(panel)
    first, *others = np.argsort(-weights, kind="stable").tolist()

    def place(key: int) -> str:
        return f"{quoted_word(columns.labels[key])}{columns.number_if_alike(key)}: {panel.quantity.text(weights[key])}"

    sentence = f"In {name}, {quoted(label)} looks most at {place(first)}"
    is_rest = columns.edges[first] == 0 or bool(head.maps.key_tokens.special[columns.edges[first]])  # for many heads
    return f"{sentence}, then {place(others[0])}" if is_rest and others else sentence


def _pattern_sentence(panel: Panel, patterns: Sequence[Pattern]) -> str:
    """Returns what a head does with its weight, as far as its patterns are clear; "" for a head with another note."""
    if not patterns:
        return "" if panel.heading.note else f"What each token looks at in {panel.heading.head}"
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
    return f"{name} puts {' and '.join(places)}" if places else f"What each token looks at in {panel.heading.head}"
