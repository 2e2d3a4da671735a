"""Reports who looks at whom: queries with the key that they attend to most, counted over a survey's texts."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from attnviz.base.arrays import FloatArray
from attnviz.base.errors import AttnvizError, option
from attnviz.corpus.survey import Survey
from attnviz.report.heads.head_columns import Column, bar_lengths, listed
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.report import HeadCards, Section
from attnviz.report.survey.survey_heads import ranked_places, survey_remarks, survey_title
from attnviz.report.words.captions import count_phrase

LISTED = 20  # pairs of a head that a screen lists
MAX_HEADS = 16  # heads whose maps of every text are computed
HOW = (
    "Each query of the survey's sample is paired with the key that it attends to most; weight is the mean over all "
    "pairs of the same two tokens. Queries that see one key are left out."
)


class _TokenPair(NamedTuple):
    """A query and the key that it attends to most.

    Attributes:
        query: the label of the query.
        key: the label of the key.
        times: the number of queries with this label whose largest weight is on a key with that label.
        weight: the mean of these weights.
    """

    query: str
    key: str
    times: int
    weight: float


def token_pairs_report(survey: Survey, options: ReportOptions) -> HeadCards:
    """Returns the most frequent pairs of each chosen head; it runs the surveyed model over the sampled texts.

    Raises:
        AttnvizError: for a survey of pictures, for a medium that is not a text, if more than `MAX_HEADS` heads or a
            head that the survey lacks are chosen, or if the model is not on this machine.
    """
    if not options.medium.lists_heads:
        pairs = option("table", "pairs")
        raise AttnvizError(f"{pairs} is a list for the terminal; leave -o out, or use -o pairs.txt")
    if survey.example_noun == "pictures":
        raise AttnvizError(f"{option('table', 'pairs')} counts pairs of words; give a survey of texts, not of pictures")
    places = ranked_places(survey, options)
    if len(places) > MAX_HEADS:
        raise AttnvizError(
            f"{option('table', 'pairs')} lists at most {MAX_HEADS} heads, but {len(places)} are chosen; choose fewer, "
            f"such as {option('heads', '0.2')}"
        )
    pairs_of_head = token_pairs(survey, places)
    texts = count_phrase(len(survey.examples.sampled), "texts")
    return HeadCards(
        title=options.look.title or survey_title(survey),
        caption=f"Which token looks at which in {texts} drawn at random from those surveyed.",
        remarks=(HOW, *survey_remarks(survey)),
        look=options.look,
        sections=tuple(
            _section(survey.heads[place].name, pairs_of_head[place], None if options.all else LISTED)
            for place in places
        ),
    )


def token_pairs(survey: Survey, places: Sequence[int]) -> Mapping[int, list[_TokenPair]]:
    """Returns the pairs of each head in the sampled texts, the most frequent first; if equal, by mean weight.

    Raises:
        AttnvizError: if the model is not on this machine, or is not the one that was surveyed.
    """
    from attnviz.corpus.example_weights import WeightsRequest, example_weights

    text_ids = [int(text_id) for text_id in survey.examples.sampled]
    spans = {text_id: (0, len(survey.examples.texts[text_id].tokens)) for text_id in text_ids}
    requests = [
        WeightsRequest(text_id, place, spans[text_id], spans[text_id]) for text_id in text_ids for place in places
    ]
    weights: dict[tuple[int, str, str], list[float]] = defaultdict(list)
    for request, rows in example_weights(survey, requests).items():
        labels = survey.examples.texts[request.text].tokens.labels
        for query, key, weight in strongest_pairs(rows):
            weights[request.head, labels[query], labels[key]].append(weight)
    pairs_of_head: dict[int, list[_TokenPair]] = {place: [] for place in places}
    for (place, query_label, key_label), pair_weights in weights.items():
        mean_weight = sum(pair_weights) / len(pair_weights)
        pairs_of_head[place].append(_TokenPair(query_label, key_label, len(pair_weights), mean_weight))
    return {
        place: sorted(pairs, key=lambda pair: (-pair.times, -pair.weight, pair))
        for place, pairs in pairs_of_head.items()
    }


def strongest_pairs(rows: FloatArray) -> list[tuple[int, int, float]]:
    """Returns each query with the key of its largest weight, and that weight.

    A query that has weight on fewer than two keys is left out.

    Args:
        rows: ``(queries, keys)``, the weights.
    """
    best_keys = np.nan_to_num(rows).argmax(axis=1)
    have_choice = (np.nan_to_num(rows) > 0).sum(axis=1) > 1
    queries = np.flatnonzero(have_choice).tolist()
    return [(query, int(best_keys[query]), float(rows[query, best_keys[query]])) for query in queries]


def _section(name: str, pairs: list[_TokenPair], max_pairs: int | None) -> Section:
    """Returns the table of a head's first ``max_pairs`` pairs, or of all for ``None``; its title counts all pairs."""
    shown_pairs = pairs[:max_pairs]
    columns = (
        Column("query", [pair.query for pair in shown_pairs], align="<"),
        Column("looks at", [pair.key for pair in shown_pairs], align="<"),
        Column(
            "times",
            [str(pair.times) for pair in shown_pairs],
            bar_lengths([pair.times for pair in shown_pairs]),
        ),
        Column("weight", [f"{pair.weight:.2f}" for pair in shown_pairs]),
    )
    unlisted_phrase = (
        f", {len(pairs) - len(shown_pairs)} rarer ones not listed" if len(pairs) > len(shown_pairs) else ""
    )
    return Section(f"head {name}: {len(pairs)} pairs{unlisted_phrase}", listed(*columns))
