"""Reports the heads of a survey as a table: means over texts with standard deviations, intervals and deciles."""

from attnviz.base.errors import AttnvizError, option
from attnviz.corpus.survey import Survey
from attnviz.corpus.survey_frame import chosen_places, survey_frame
from attnviz.report.heads.head_atlas import About, frame_report
from attnviz.report.heads.head_results import HeadsReport
from attnviz.report.picture.look import refuse_style
from attnviz.report.picture.options import CONTRIBUTIONS, ReportOptions
from attnviz.report.words.captions import layers_phrase

UNKNOWN_METRICS = "a part of the survey lacks them, this attnviz does not know them, or the texts were decoded from ids"


def survey_heads_report(survey: Survey, options: ReportOptions) -> HeadsReport:
    """Returns the report of the chosen heads of a survey.

    Raises:
        AttnvizError: if the survey lacks a chosen head or the metric to sort by, or an option needs the maps of one
            input.
    """
    refuse_style(options.look, "a table of heads")
    if options.of == CONTRIBUTIONS:
        raise AttnvizError(f"a survey measures only weights; leave {option('of', CONTRIBUTIONS)} out")
    refuse_text_options(options)
    frame = survey_frame(survey, chosen_places(survey, options.selection))
    return frame_report(About(survey_title(survey), survey.model, survey_remarks(survey)), frame, options)


def ranked_places(survey: Survey, options: ReportOptions) -> list[int]:
    """Returns the indices of the chosen heads in the survey, filtered, sorted and cut to the top few by the options.

    Raises:
        AttnvizError: if the survey lacks a head or metric, or the filter matches no head.
    """
    places = chosen_places(survey, options.selection)
    frame = survey_frame(survey, places)
    return [places[row] for row in frame.selected_rows(options.sort, options.top, options.filter)]


def refuse_text_options(options: ReportOptions) -> None:
    """Raises AttnvizError for the first option in use that needs the maps of one input, which no survey has."""
    look, defaults = options.look, type(options)()
    is_used_by_name = {
        "of": options.of != defaults.of,
        "table": options.table not in (None, "pairs"),
        "reduce": options.reduce is not None,
        "by": options.grouping.by is not None,
        "words": options.grouping.words,
        "no_special": options.grouping.no_special,
        "renormalize": options.grouping.renormalize,
        "queries": options.selection.queries != defaults.selection.queries,
        "keys": options.selection.keys != defaults.selection.keys,
        "style": look.style is not None,
        "query": look.query is not None,
        "mark": look.mark is not None,
        "pool": look.pool != defaults.look.pool,
        "notes": look.notes is not None,
        "effects": look.effects is not None,
    }
    name = next((name for name, is_used in is_used_by_name.items() if is_used), None)
    if name is not None:
        raise AttnvizError(
            f"{option(name)} needs the maps of one input, but a survey holds means over all of them; the card of a "
            "head has commands that draw its examples"
        )


def survey_title(survey: Survey) -> str:
    """Returns the model, the corpus and its size as a title: ``gpt2 over wiki.txt: 12 texts, 340 tokens``.

    An absolute path in the corpus is cut to the name of its file.
    """
    names = (name.rpartition("/")[2] if name.startswith("/") else name for name in survey.corpus)
    over_corpus = f" over {', '.join(names)}" if survey.corpus else ""
    return f"{survey.model}{over_corpus}: {survey.texts} {survey.example_noun}, {survey.tokens} tokens"


def survey_remarks(survey: Survey) -> tuple[str, ...]:
    """Returns a remark on the surveyed layers and corpus, and one each on skipped texts and omitted metrics if any."""
    layers, over_corpus = layers_phrase(head.layer for head in survey.heads), f" over {', '.join(survey.corpus)}"
    skipped_phrase = ", ".join(f"{count} {reason}" for reason, count in survey.skipped.items() if count)
    remarks = [f"A survey of {layers}{over_corpus if survey.corpus else ''}."]
    if skipped_phrase:
        remarks.append(f"Left out of the corpus: {skipped_phrase}.")
    if survey.omitted_metrics:
        remarks.append(f"Metrics left out ({UNKNOWN_METRICS}): {', '.join(survey.omitted_metrics)}.")
    return tuple(remarks)
