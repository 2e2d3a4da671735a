"""A survey to its heads as points and as cards, each with the texts that show it: for a page, and for pictures."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attnviz.base.arrays import Float64Array, FloatArray, IntArray
from attnviz.base.errors import AttnvizError, known_names, nearest, option
from attnviz.corpus.sums.bins import offset_spans, position_spans
from attnviz.corpus.sums.examples import NO_TEXT
from attnviz.corpus.sums.survey import Survey
from attnviz.corpus.survey_frame import survey_frame
from attnviz.corpus.texts.token_classes import CLASSES, RELATIONS
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.report import HeadExample, ShownText, SurveyedHeads
from attnviz.report.survey.survey_heads import survey_remarks, title_of
from attnviz.report.words.reproducing import head_command
from attnviz.text.spaces import spaces_before
from attnviz.text.tokens import Tokens

if TYPE_CHECKING:
    from attnviz.corpus.example_weights import WantedWeights

CLASS_NAMES = ("special", "first", *(metric.name for metric in (*CLASSES, *RELATIONS)))
LAYER = "layer"  # which colours may show beside the metrics
MAX_AXES = 4  # across, up, size, colour
FIRST_AXES = ("previous", "special", "sink", "self", "entropy")  # of those, the first two that there are
TENTHS = (9, 8, 7, 6, 5, 4, 3, 2, 1, 0)
CARD_TENTHS = (5, 1)  # of a picture of a card
CARD_TEXTS = 3  # with the largest number, of the same
SHOWN_TOKENS, SHOWN_AFTER = 96, 32  # of a text, and at least so many of these after the query
OTHER_TEXTS = 3  # with the largest number, of each metric but the one that a head's texts are chosen by
MAX_OTHER_EXAMPLES = 10_000  # of all heads; of more heads, a page has texts by one metric each
MAX_CELLS = 4_000_000  # weights of all examples, before each has those of one query alone


class ChosenExample(NamedTuple):
    """An example before its weights are known.

    Attributes:
        said: why it is one.
        value: the head's number over it.
        id: the text's number in the survey.
        query: the token that looks; ``None`` for no single one.
        span: the first token that is shown, and the one after the last.
        metric: the name of the number.
        brief: whether the weights of one row are enough.
    """

    said: str
    value: float
    id: int
    query: int | None
    span: tuple[int, int]
    metric: str = ""
    brief: bool = False


def surveyed_heads_report(
    survey: Survey, places: Sequence[int], shown_by: Sequence[str], options: ReportOptions
) -> SurveyedHeads:
    """The report of some heads of a survey.

    Args:
        survey: the survey.
        places: of the heads.
        shown_by: the metric that each head's examples are chosen by.
        options: what is drawn, on what.

    Raises:
        AttnvizError: for axes that are none.
    """
    picture = options.medium.draws_maps or options.medium.lists_heads
    axes, cards = chosen_axes(survey, options.axes), picture and options.axes is None
    if picture and not options.medium.one_page:
        raise AttnvizError(f"{option('axes')} draws points; -o heads.png, .svg, .pdf or .html works")
    frame = survey_frame(survey, places)
    held, tallies = list(places), survey.tallies
    names = [metric.name for metric in survey.metrics]
    seen, lived = (np.flatnonzero(counts[held].any(axis=0)) for counts in (tallies.pairs, tallies.rows))
    pairs = tallies.pairs[held]
    weights, scores = (_means(each.total[held], pairs)[:, seen] for each in (tallies.weights, tallies.scores))
    entropies = _means(tallies.entropies.total[held], tallies.rows[held])[:, lived]
    few = (CARD_TEXTS, CARD_TENTHS) if cards else ()
    chosen = [
        chosen_examples(survey, place, names.index(name), *few) if cards or not picture else []
        for place, name in zip(places, shown_by, strict=True)
    ]
    others = [] if picture else _of_other_metrics(survey, places, shown_by)
    by_one = [] if picture or others else [_by_one_metric()]
    wanted = [[*main, *more] for main, more in zip(chosen, others, strict=True)] if others else chosen
    examples, texts, remark = _with_weights(survey, places, wanted)
    return SurveyedHeads(
        title=options.look.title or (title_of(survey) if picture else _title_of_page(survey)),
        caption=_caption(survey, [row.name for row in frame.rows], axes, cards),
        remarks=(*_remarks(cards, picture), *by_one, *remark, *survey_remarks(survey)),
        look=options.look,
        frame=frame,
        classes=classes_of(survey),
        offsets=tuple(offset_spans()[number] for number in seen),
        weights=weights,
        scores=scores,
        positions=tuple(position_spans()[number] for number in lived),
        entropies=entropies,
        shown_by=tuple(shown_by),
        examples=tuple(of_head[: len(main)] for of_head, main in zip(examples, chosen, strict=True)),
        texts=texts,
        axes=axes,
        cards=cards,
        more_examples=tuple(of_head[len(main) :] for of_head, main in zip(examples, chosen, strict=True)),
    )


def classes_of(survey: Survey) -> tuple[str, ...]:
    """The names of the classes of tokens that some text has."""
    names = [metric.name for metric in survey.metrics]
    known = (name for name in (*CLASS_NAMES, *survey.own) if name in names)
    return tuple(name for name in known if survey.tallies.count[:, names.index(name)].any())


def _means(totals: Float64Array, counts: IntArray) -> Float64Array:
    """Totals over counts; NaN for none."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(counts > 0, totals / counts, np.nan)


def chosen_axes(survey: Survey, asked: str | None) -> tuple[str, ...]:
    """The names of the numbers across and up, and of size and colour where they were asked for.

    Raises:
        AttnvizError: for fewer than two, more than four, or what is no number of the survey.
    """
    known = [metric.name for number, metric in enumerate(survey.metrics) if survey.tallies.count[:, number].any()]
    if asked is None:
        first = [name for name in FIRST_AXES if name in known]
        return (*dict.fromkeys((*first, *known)),)[:2]
    axes = tuple(name.strip() for name in asked.split(","))
    if not 2 <= len(axes) <= MAX_AXES:
        raise AttnvizError(
            f"{option('axes', asked)} are not two to four numbers; {option('axes', 'previous,sink')} works"
        )
    for name in axes:
        if name not in (*known, LAYER):
            others = f"{nearest(name, known)}{known_names((*known, LAYER))}"
            raise AttnvizError(f"unknown number {name!r} in {option('axes')}; {others} works")
    return axes


def chosen_examples(
    survey: Survey, place: int, number: int, largest: int | None = None, tenths: Sequence[int] = TENTHS
) -> list[ChosenExample]:
    """The texts with a head's largest numbers, then those of the sample that are nearest to some deciles.

    Args:
        survey: the survey.
        place: of the head.
        number: the place of the metric.
        largest: how many of the first there are at most; ``None`` for all.
        tenths: which deciles.
    """
    examples, found = survey.examples, list[ChosenExample]()
    top = zip(examples.ids[place, number], examples.values[place, number], examples.places[place, number], strict=True)
    for id, value, query in list(top)[:largest]:
        if id != NO_TEXT:
            found.append(_shown(survey, "largest", float(value), int(id), int(query)))
    values = examples.sample[:, place, number]
    if np.isnan(values).all():
        return found
    deciles = survey.deciles(place, number)
    for tenth in tenths:
        nearest_one = int(np.nanargmin(np.abs(values - deciles[tenth])))
        said = f"{tenth * 10} %" if tenth else "smallest"
        found.append(_shown(survey, said, float(values[nearest_one]), int(examples.sampled[nearest_one]), -1))
    return found


def _of_other_metrics(survey: Survey, places: Sequence[int], shown_by: Sequence[str]) -> list[list[ChosenExample]]:
    """The texts with the largest of every other metric of each head; nothing where that is too much for a page."""
    known = [number for number in range(len(survey.metrics)) if survey.tallies.count[list(places), number].any()]
    if len(places) * len(known) * OTHER_TEXTS > MAX_OTHER_EXAMPLES:
        return []
    names = [metric.name for metric in survey.metrics]
    return [
        [
            each._replace(metric=names[number], brief=True)
            for number in known
            if names[number] != shown
            for each in chosen_examples(survey, place, number, OTHER_TEXTS, ())
        ]
        for place, shown in zip(places, shown_by, strict=True)
    ]


def _by_one_metric() -> str:
    """The remark of a page of many heads, which has the texts of each by one metric alone."""
    fewer = (
        f"{option('heads', '0.2')} or {option('top', 50)} chooses fewer heads, whose texts are listed by every metric"
    )
    return f"The texts of a head are those of the metric that tells most of it, or of {option('sort')}; {fewer}."


def _shown(survey: Survey, said: str, value: float, id: int, query: int) -> ChosenExample:
    count = len(survey.examples.texts[id].tokens)
    stop = min(count, max(query + 1 + SHOWN_AFTER, SHOWN_TOKENS))
    return ChosenExample(said, value, id, query if query >= 0 else None, (max(0, stop - SHOWN_TOKENS), stop))


def _with_weights(
    survey: Survey, places: Sequence[int], chosen: Sequence[Sequence[ChosenExample]]
) -> tuple[tuple[tuple[HeadExample, ...], ...], tuple[ShownText, ...], tuple[str, ...]]:
    """The examples of each head, their texts, and what must be said of their weights."""
    from attnviz.corpus.example_weights import example_weights

    cells = sum((each.span[1] - each.span[0]) ** 2 for of_head in chosen for each in of_head if not each.brief)
    wanted = [
        _wanted_weights(survey, place, of_head, cells <= MAX_CELLS)
        for place, of_head in zip(places, chosen, strict=True)
    ]
    # Many texts have the largest number of several metrics: their weights are computed once.
    once = {each: None for of_head in wanted for each in of_head}
    remark: tuple[str, ...] = ()
    try:
        found = example_weights(survey, list(once)) if cells else {}
    except AttnvizError as error:
        found, remark = {}, (f"The examples are not shaded by what a token looks at: {error}.",)
    texts: dict[tuple[int, tuple[int, int]], int] = {}
    examples = tuple(
        tuple(
            HeadExample(
                reason=each.said,
                value=each.value,
                text=texts.setdefault((each.id, each.span), len(texts)),
                query=None if each.query is None else each.query - each.span[0],
                weights=_shown_rows(found.get(one), each),
                metric=each.metric,
            )
            for each, one in zip(of_head, asked, strict=True)
        )
        for of_head, asked in zip(chosen, wanted, strict=True)
    )
    return examples, tuple(_text(survey, id, span) for id, span in texts), remark


def _wanted_weights(survey: Survey, place: int, chosen: Sequence[ChosenExample], whole: bool) -> "list[WantedWeights]":
    """Which weights of a head its examples need: of a brief one those of its text that another has anyway."""
    from attnviz.corpus.example_weights import WantedWeights

    wanted = [
        WantedWeights(each.id, place, _queries(each, whole and not each.brief, survey), each.span) for each in chosen
    ]
    all_rows = {one.text: one for one in wanted if one.queries == one.keys}
    return [all_rows.get(each.id, one) if each.brief else one for each, one in zip(chosen, wanted, strict=True)]


def _shown_rows(weights: FloatArray | None, chosen: ChosenExample) -> FloatArray | None:
    """The rows that an example keeps of those that are known: of a brief one that of its query, or the mean."""
    if weights is None or not chosen.brief or len(weights) == 1:
        return weights
    if chosen.query is None:
        return np.asarray(weights.mean(axis=0, keepdims=True), dtype=np.float32)
    return weights[chosen.query : chosen.query + 1]  # all rows are known of whole texts alone


def _queries(chosen: ChosenExample, whole: bool, survey: Survey) -> tuple[int, int] | None:
    """Which rows an example keeps: all where its text is shown whole and there is room, else that of its query."""
    count = len(survey.examples.texts[chosen.id].tokens)
    if whole and chosen.span == (0, count):
        return chosen.span
    return None if chosen.query is None else (chosen.query, chosen.query + 1)


def _text(survey: Survey, id: int, span: tuple[int, int]) -> ShownText:
    example = survey.examples.texts[id]
    tokens: Tokens = example.tokens
    part = slice(*span)
    return ShownText(
        labels=tokens.labels[part],
        spaces=spaces_before(tokens)[part],
        place=replace(example, source=example.source.rpartition("/")[2]).place,
        whole=span == (0, len(tokens)),
        command=head_command(tokens.text, survey.settings, survey.model),
    )


def _title_of_page(survey: Survey) -> str:
    """The model, the corpus, and its size."""
    return f"{survey.model} over {', '.join(survey.corpus)}: {title_of(survey)}"


def _caption(survey: Survey, heads: Sequence[str], axes: Sequence[str], cards: bool) -> str:
    over = f"over {survey.texts} texts"
    if cards:
        several = len(heads) > 1
        which = f"head{'s' * several} {', '.join(heads)} of {survey.model}"
        return f"What {which} {'do' if several else 'does'} {over}."
    more = "".join(f", {kind} by {name}" for kind, name in zip(("size", "colour"), axes[2:], strict=False))
    return f"{len(heads)} heads of {survey.model} {over}, by {axes[0]} and {axes[1]}{more}."


def _remarks(cards: bool, picture: bool) -> Iterator[str]:
    """What the numbers and the texts are."""
    yield "Numbers are means over texts; a bar or cross is the 95 % interval of a mean."
    if cards or not picture:
        yield "Offsets are key − query: −1 is the token before."
        yield (
            "Texts are those with the largest number, and of 256 drawn at random those nearest to a decile; shaded by "
            "what the framed token looks at, or else by the mean of all tokens."
        )
