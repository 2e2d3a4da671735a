"""Reports the heads of a survey as points and as cards with example texts, for pages and pictures."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attnviz.base.arrays import Float64Array, FloatArray, IntArray
from attnviz.base.errors import AttnvizError, choices, flag, layers_phrase, option
from attnviz.corpus.sums import offset_spans, position_spans
from attnviz.corpus.survey import NO_TEXT, Survey
from attnviz.corpus.survey_frame import survey_frame
from attnviz.corpus.token_classes import CLASSES, RELATIONS
from attnviz.maps.recording import silence_remarks
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.report import HeadExample, ShownText, SurveyedHeads
from attnviz.report.words.captions import count_phrase
from attnviz.report.words.notes import names_of
from attnviz.report.words.reproducing import head_command
from attnviz.text.places import spaces_before
from attnviz.text.tokens import Tokens

if TYPE_CHECKING:
    from attnviz.corpus.example_weights import WeightsRequest

PATCH_CLASSES = ("on-picture", "border", "registers", "left", "right", "above", "below")
CLASS_NAMES = ("special", "first", *PATCH_CLASSES, *(metric.name for metric in (*CLASSES, *RELATIONS)))
LAYER = "layer"  # an axis besides the metrics
MAX_AXES = 4  # across, up, size, colour
# The default axes are the first two that exist: of texts previous and special, of pictures those of patches.
FIRST_AXES = ("previous", "spatial-entropy", "on-picture", "special", "sink", "self", "entropy")
TENTHS = (9, 8, 7, 6, 5, 4, 3, 2, 1, 0)  # deciles that a page shows an example of
CARD_TENTHS = (5, 1)  # deciles that a picture of a card shows an example of
CARD_TEXTS = 3  # texts with the largest number in a picture of a card
SHOWN_TOKENS, SHOWN_AFTER = 96, 32  # tokens of an example in all, and after its query if the text has them
OTHER_TEXTS = 3  # texts with the largest number, for each metric but the one that chooses a head's texts
MAX_OTHER_EXAMPLES = 10_000  # of all heads; with more, a page has the texts of one metric for each head
UNKNOWN_METRICS = "a part of the survey lacks them, this attnviz does not know them, or the texts were decoded from ids"
MAX_CELLS = 4_000_000  # weights of all examples; with more, each example keeps the row of one query


class ChosenExample(NamedTuple):
    """An example before its weights are computed."""

    reason: str  # the reason for the choice: ``largest``, ``smallest``, or a decile such as ``50 %``
    value: float  # the head's number in the text
    id: int  # the text's number in the survey
    query: int | None  # the query with the largest number in the text; ``None`` for the mean of all
    span: tuple[int, int]  # the range ``(start, stop)`` of the shown tokens
    metric: str = ""  # the name of the metric; "" for the one that chooses the head's texts
    brief: bool = False  # True if one row of weights suffices


def surveyed_heads_report(
    survey: Survey, head_indices: Sequence[int], example_metrics: Sequence[str], options: ReportOptions
) -> SurveyedHeads:
    """Returns the report of some heads of a survey: their numbers, and example texts unless it is a picture of points.

    A page also has examples of the other metrics, each with one row of weights, unless they are more than
    `MAX_OTHER_EXAMPLES`; a remark then says so. Bins of offsets without a pair, and of positions without a row, are
    left out.
    """
    is_picture = options.medium.draws_maps or options.medium.lists_heads
    axes = chosen_axes(survey, options.axes)
    draws_cards = is_picture and options.axes is None
    if is_picture and not options.medium.one_page:
        raise AttnvizError(f"{option('axes')} draws points; use -o heads.png, .svg, .pdf or .html")
    frame = survey_frame(survey, head_indices).with_names(names_of(options.look))
    indices, tallies = list(head_indices), survey.tallies
    names = [metric.name for metric in survey.metrics]
    pairs, rows = tallies.pairs[indices], tallies.rows[indices]
    offsets, positions = (np.flatnonzero(counts.any(axis=0)) for counts in (pairs, rows))
    weights, scores = (_means(tally.total[indices], pairs)[:, offsets] for tally in (tallies.weights, tallies.scores))
    entropies = _means(tallies.entropies.total[indices], rows)[:, positions]
    limits = (CARD_TEXTS, CARD_TENTHS) if draws_cards else ()  # else all texts and `TENTHS`, the defaults
    main_examples = [
        chosen_examples(survey, head_index, names.index(name), *limits) if draws_cards or not is_picture else []
        for head_index, name in zip(head_indices, example_metrics, strict=True)
    ]
    other_examples = [] if is_picture else _examples_of_other_metrics(survey, head_indices, example_metrics)
    one_metric_remark = []
    if not is_picture and not other_examples:
        noun, metric_phrase = survey.example_noun, f"its clearest metric, or of {option('sort')}"
        advice = f"{option('heads', '0.2')} or {option('top', 50)} chooses fewer heads, with {noun} by every metric"
        one_metric_remark = [f"Each head lists the {noun} with the largest values of {metric_phrase}; {advice}."]
    all_examples = main_examples
    if other_examples:
        all_examples = [[*main, *others] for main, others in zip(main_examples, other_examples, strict=True)]
    main_counts = [len(main) for main in main_examples]
    examples, texts, weights_remark = _examples_with_weights(survey, head_indices, all_examples)
    return SurveyedHeads(
        title=options.look.title or survey_title(survey),
        caption=_caption(survey, [row.name for row in frame.rows], axes, draws_cards),
        remarks=(
            *_remarks(survey, draws_cards, is_picture),
            *one_metric_remark,
            *weights_remark,
            *survey_remarks(survey),
        ),
        look=options.look,
        frame=frame,
        classes=classes_of(survey),
        offsets=tuple(offset_spans()[number] for number in offsets),
        weights=weights,
        scores=scores,
        positions=tuple(position_spans()[number] for number in positions),
        entropies=entropies,
        shown_by=tuple(example_metrics),
        examples=tuple(of_head[:count] for of_head, count in zip(examples, main_counts, strict=True)),
        texts=texts,
        axes=axes,
        cards=draws_cards,
        more_examples=tuple(of_head[count:] for of_head, count in zip(examples, main_counts, strict=True)),
    )


def classes_of(survey: Survey) -> tuple[str, ...]:
    """Returns the names of the classes of tokens that occur in at least one text; empty if none does.

    ``registers`` is left out if it has the numbers of ``special``: tokens without a place are then the special ones.
    """
    names = [metric.name for metric in survey.metrics]
    class_names = (name for name in (*CLASS_NAMES, *survey.custom_classes) if name in names)
    classes = tuple(name for name in class_names if survey.tallies.count[:, names.index(name)].any())
    if not {"special", "registers"} <= set(classes):
        return classes
    special, registers = (survey.means[:, names.index(name)] for name in ("special", "registers"))
    are_one_class = np.allclose(special, registers, rtol=1e-6, equal_nan=True)
    return tuple(name for name in classes if name != "registers" or not are_one_class)


def _means(totals: Float64Array, counts: IntArray) -> Float64Array:
    """Returns totals divided by counts; NaN where a count is 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(counts > 0, totals / counts, np.nan)


def chosen_axes(survey: Survey, axes_option: str | None) -> tuple[str, ...]:
    """Returns the names of the metrics on the x and y axes, then those of size and colour if the user names them.

    Without an option they are two: the first of `FIRST_AXES` that the survey has, then its first metrics.
    """
    names = [metric.name for number, metric in enumerate(survey.metrics) if survey.tallies.count[:, number].any()]
    if axes_option is None:
        first_names = [name for name in FIRST_AXES if name in names]
        return tuple(dict.fromkeys((*first_names, *names)))[:2]
    axes = tuple(name.strip() for name in axes_option.split(","))
    if not 2 <= len(axes) <= MAX_AXES:
        raise AttnvizError(
            f"{option('axes', axes_option)} does not name two to four metrics; use {option('axes', 'previous,sink')}"
        )
    for name in axes:
        if name not in (*names, LAYER):
            raise AttnvizError(f"unknown metric {name!r} in {option('axes')}; {choices(name, (*names, LAYER))}")
    return axes


def chosen_examples(
    survey: Survey, head_index: int, metric_index: int, max_texts: int | None = None, tenths: Sequence[int] = TENTHS
) -> list[ChosenExample]:
    """Returns the texts or pictures with a head's largest numbers, then the sampled ones nearest to some deciles.

    There are none for deciles if the metric was measured in nothing of the sample.
    """
    examples, chosen_texts = survey.examples, list[ChosenExample]()
    ids, numbers, queries = (
        array[head_index, metric_index] for array in (examples.ids, examples.values, examples.queries)
    )
    for id, value, query in list(zip(ids, numbers, queries, strict=True))[:max_texts]:
        if id != NO_TEXT:
            chosen_texts.append(_chosen_example(survey, "largest", float(value), int(id), int(query)))
    values = examples.sample[:, head_index, metric_index]
    if np.isnan(values).all():
        return chosen_texts
    deciles = survey.deciles(head_index, metric_index)
    for tenth in tenths:
        nearest = int(np.nanargmin(np.abs(values - deciles[tenth])))
        reason = f"{tenth * 10} %" if tenth else "smallest"
        text_id = int(examples.sampled[nearest])
        chosen_texts.append(_chosen_example(survey, reason, float(values[nearest]), text_id, query=-1))
    return chosen_texts


def _examples_of_other_metrics(
    survey: Survey, head_indices: Sequence[int], example_metrics: Sequence[str]
) -> list[list[ChosenExample]]:
    """Returns, for each head, the texts with the largest numbers of every metric except the head's main metric."""
    metric_indices = [
        metric for metric in range(len(survey.metrics)) if survey.tallies.count[list(head_indices), metric].any()
    ]
    if len(head_indices) * len(metric_indices) * OTHER_TEXTS > MAX_OTHER_EXAMPLES:
        return []
    names = [metric.name for metric in survey.metrics]
    examples_of_heads = []
    for head_index, main_metric in zip(head_indices, example_metrics, strict=True):
        examples: list[ChosenExample] = []
        for metric in metric_indices:
            if names[metric] != main_metric:
                largest = chosen_examples(survey, head_index, metric, OTHER_TEXTS, ())
                examples += [example._replace(metric=names[metric], brief=True) for example in largest]
        examples_of_heads.append(examples)
    return examples_of_heads


def _chosen_example(survey: Survey, reason: str, value: float, id: int, query: int) -> ChosenExample:
    """Returns an example that shows a whole picture, or at most `SHOWN_TOKENS` tokens of a text."""
    count = len(survey.examples.texts[id].tokens)
    stop = min(count, max(query + 1 + SHOWN_AFTER, SHOWN_TOKENS))
    span = (0, count) if _is_picture(survey, id) else (max(0, stop - SHOWN_TOKENS), stop)
    return ChosenExample(reason, value, id, query if query >= 0 else None, span)


def _examples_with_weights(
    survey: Survey, head_indices: Sequence[int], examples_of_heads: Sequence[Sequence[ChosenExample]]
) -> tuple[tuple[tuple[HeadExample, ...], ...], tuple[ShownText, ...], tuple[str, ...]]:
    """Returns the examples of each head, their texts, and a remark if their weights cannot be computed."""
    full_spans = [example.span for example in chain.from_iterable(examples_of_heads) if not example.brief]
    cells = sum((stop - start) ** 2 for start, stop in full_spans)
    requests = [
        _weight_requests(survey, head_index, head_examples, whole_texts=cells <= MAX_CELLS)
        for head_index, head_examples in zip(head_indices, examples_of_heads, strict=True)
    ]
    # Many texts have the largest number of several metrics: their weights are computed once.
    distinct_requests = dict.fromkeys(chain.from_iterable(requests))
    weights, pictures, remarks = _computed_weights(survey, list(distinct_requests) if cells else [])
    texts: dict[tuple[int, tuple[int, int], int | None], int] = {}
    examples = []
    for head_examples, head_requests in zip(examples_of_heads, requests, strict=True):
        shown_examples = []
        for example, request in zip(head_examples, head_requests, strict=True):
            # A picture that is not drawn is named with its query, which is not among tokens that are shown.
            is_named = _is_picture(survey, example.id) and example.id not in pictures
            key = example.id, example.span, example.query if is_named else None
            rows = weights.get(request)
            if rows is not None and example.brief and len(rows) > 1:  # the whole text's, of which one row is shown
                if example.query is None:
                    rows = np.asarray(rows.mean(axis=0, keepdims=True), dtype=np.float32)
                else:
                    rows = rows[example.query : example.query + 1]
            shown_example = HeadExample(
                reason=example.reason,
                value=example.value,
                text=texts.setdefault(key, len(texts)),  # a new text gets the next index
                query=None if example.query is None or is_named else example.query - example.span[0],
                weights=rows,
                metric=example.metric,
            )
            shown_examples.append(shown_example)
        examples.append(tuple(shown_examples))
    return tuple(examples), tuple(_shown_text(survey, pictures.get(key[0]), *key) for key in texts), remarks


def _computed_weights(
    survey: Survey, requests: "Sequence[WeightsRequest]"
) -> "tuple[Mapping[WeightsRequest, FloatArray], Mapping[int, Tokens], tuple[str, ...]]":
    """Returns the weights of the requests, the tokens of pictures by their numbers, and a remark on those it lacks."""
    if not requests:
        return {}, {}, ()
    try:
        if survey.example_noun == "texts":
            from attnviz.corpus.example_weights import example_weights

            return example_weights(survey, requests), {}, ()
        from attnviz.corpus.example_weights import example_pictures

        weights, pictures, missing = example_pictures(survey, requests)
    except AttnvizError as error:
        return {}, {}, (f"The examples are not shaded by what a token looks at: {error}.",)
    if not missing:
        return weights, pictures, ()
    pictures_are = "picture is" if len(missing) == 1 else "pictures are"
    return weights, pictures, (f"{len(missing)} {pictures_are} not drawn: no such file as {missing[0]!r}.",)


def _is_picture(survey: Survey, id: int) -> bool:
    """True if an example is a picture, whose row is 0; the row of a text is counted in the file from 1."""
    return not survey.examples.texts[id].row


def _weight_requests(
    survey: Survey, head_index: int, examples: Sequence[ChosenExample], whole_texts: bool
) -> "list[WeightsRequest]":
    """Returns a request for each example of a head, for the weights that the example needs."""
    from attnviz.corpus.example_weights import WeightsRequest

    requests = []
    for example in examples:
        queries = None if example.query is None else (example.query, example.query + 1)  # None: the mean of all
        is_whole = example.span == (0, len(survey.examples.texts[example.id].tokens))
        if whole_texts and not example.brief and is_whole:
            queries = example.span
        requests.append(WeightsRequest(example.id, head_index, queries, example.span))
    full_requests = {request.text: request for request in requests if request.queries == request.keys}
    return [
        full_requests.get(example.id, request) if example.brief else request
        for example, request in zip(examples, requests, strict=True)
    ]


def _shown_text(survey: Survey, picture: Tokens | None, id: int, span: tuple[int, int], query: int | None) -> ShownText:
    """Returns the tokens of a text in a range, with its position in the corpus and the command that draws it."""
    example = survey.examples.texts[id]
    tokens: Tokens = picture or example.tokens
    labels, spaces = tokens.labels[slice(*span)], spaces_before(tokens)[slice(*span)]
    before, after = head_command(example.title, survey.settings, survey.model)
    if picture is None and _is_picture(survey, id):
        labels, spaces = (f"all {len(tokens)} tokens" if query is None else f"at {tokens.labels[query]}",), "-"
        after += "" if query is None else f" {flag('query')} {shlex.quote(tokens.labels[query])}"
    return ShownText(
        labels=labels,
        spaces=spaces,
        corpus_position=replace(example, source=example.source.rpartition("/")[2]).corpus_position,
        whole=_is_picture(survey, id) or span == (0, len(tokens)),
        command=(before, after) if before else ("", ""),
        picture=picture,
    )


def _caption(survey: Survey, heads: Sequence[str], axes: Sequence[str], draws_cards: bool) -> str:
    """Returns a sentence on the heads and texts, and on the axes unless the report draws cards."""
    over_texts = f"over {survey.texts} {survey.example_noun}"
    if draws_cards:
        noun, verb = ("heads", "do") if len(heads) > 1 else ("head", "does")
        return f"What {noun} {', '.join(heads)} of {survey.model} {verb} {over_texts}."
    size_and_colour = "".join(f", {kind} by {name}" for kind, name in zip(("size", "colour"), axes[2:], strict=False))
    points = f"{count_phrase(len(heads), 'heads')} of {survey.model} {over_texts}"
    return f"{points}, by {axes[0]} and {axes[1]}{size_and_colour}."


def _remarks(survey: Survey, draws_cards: bool, is_picture: bool) -> Iterator[str]:
    """Yields remarks that explain the numbers and, on cards and pages, the examples, and for texts the offsets."""
    noun, sample = survey.example_noun, f"{len(survey.examples.sampled)} drawn at random"
    yield f"Numbers are means over {noun}; a bar or cross is the 95 % interval of a mean."
    shows_examples = draws_cards or not is_picture
    if shows_examples and noun == "pictures":
        yield (
            f"The pictures are those with the largest numbers, and those nearest to a decile of {sample}. Colours show "
            "what the framed patch looks at, or without a frame what all tokens look at on average; they end at the "
            "largest weight."
        )
    elif shows_examples:
        yield "Offsets are key − query: −1 is the token before."
        yield (
            f"The texts are those with the largest numbers, and those nearest to a decile of {sample}. Shades show "
            "what the framed token looks at, or without a frame what all tokens look at on average."
        )


MAX_NAMED_FILES = 3  # of a corpus, in a title; a remark names all


def survey_title(survey: Survey) -> str:
    """Returns the model, the corpus and its size as a title: ``gpt2 over wiki.txt: 12 texts, 340 tokens``.

    An absolute path in the corpus is cut to the name of its file. Of more than three files two are named.
    """
    names = [name.rpartition("/")[2] if name.startswith("/") else name for name in survey.corpus]
    if len(names) > MAX_NAMED_FILES:
        names = [names[0], f"{names[1]} and {len(names) - 2} more"]
    over_corpus = f" over {', '.join(names)}" if survey.corpus else ""
    return f"{survey.model}{over_corpus}: {survey.texts} {survey.example_noun}, {survey.tokens} tokens"


def survey_remarks(survey: Survey) -> tuple[str, ...]:
    """Returns a remark on the surveyed layers and corpus, those on the weights, and one each on what was left out."""
    layers, over_corpus = layers_phrase(head.layer for head in survey.heads), f" over {', '.join(survey.corpus)}"
    skipped_phrase = ", ".join(f"{count} {reason}" for reason, count in survey.skipped.items() if count)
    remarks = [f"A survey of {layers}{over_corpus if survey.corpus else ''}.", *survey.remarks]
    if skipped_phrase:
        remarks.append(f"Left out of the corpus: {skipped_phrase}.")
    if survey.omitted_metrics:
        remarks.append(f"Metrics left out ({UNKNOWN_METRICS}): {', '.join(survey.omitted_metrics)}.")
    return (*remarks, *silence_remarks(survey.silent_layers, (head.layer for head in survey.heads)))
