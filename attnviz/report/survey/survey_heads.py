"""A survey to the table of its heads: means over texts with their spread, interval and deciles."""

from attnviz.base.errors import AttnvizError, number_ranges, option
from attnviz.corpus.sums.survey import Survey
from attnviz.corpus.survey_frame import chosen_places, survey_frame
from attnviz.report.heads.found import FoundReport
from attnviz.report.heads.head_atlas import About, frame_report
from attnviz.report.picture.look import refuse_style
from attnviz.report.picture.options import CONTRIBUTIONS, ReportOptions

UNKNOWN_METRICS = "a part lacks them, this attnviz does not know them, or the texts were decoded from ids"


def survey_heads_report(survey: Survey, options: ReportOptions) -> FoundReport:
    """The report of the chosen heads of a survey.

    Raises:
        AttnvizError: if there are no such heads, the order cannot be had, or what is asked is of a text.
    """
    refuse_style(options.look, "a table of heads")
    if options.of == CONTRIBUTIONS:
        raise AttnvizError(f"a survey counts weights; leave {option('of', CONTRIBUTIONS)} out")
    refuse_of_texts(options)
    frame = survey_frame(survey, chosen_places(survey, options.selection))
    return frame_report(About(title_of(survey), survey.model, survey_remarks(survey)), frame, options)


def ranked_places(survey: Survey, options: ReportOptions) -> list[int]:
    """Where the heads stand that are chosen, filtered and ordered as the options say.

    Raises:
        AttnvizError: for a head or metric that is not there, or a filter that leaves none.
    """
    chosen = chosen_places(survey, options.selection)
    frame = survey_frame(survey, chosen)
    return [chosen[place] for place in frame.places(options.sort, options.top, options.filter)]


def refuse_of_texts(options: ReportOptions) -> None:
    """Raises AttnvizError for what can be asked of a text, and not of a survey, which holds no maps."""
    look, plain = options.look, type(options)()
    asked = {
        "of": options.of != plain.of,
        "table": options.table is not None,
        "reduce": options.reduce is not None,
        "by": options.grouping.by is not None,
        "words": options.grouping.words,
        "no_special": options.grouping.no_special,
        "renormalize": options.grouping.renormalize,
        "queries": options.selection.queries != plain.selection.queries,
        "keys": options.selection.keys != plain.selection.keys,
        "style": look.style is not None,
        "query": look.query is not None,
        "mark": look.mark is not None,
        "pool": look.pool != plain.look.pool,
        "notes": look.notes is not None,
        "effects": look.effects is not None,
    }
    if found := next((name for name, given in asked.items() if given), None):
        raise AttnvizError(
            f"{option(found)} is of the map of a text, and a survey holds means over texts; the card of a head has "
            "commands that draw its examples"
        )


def title_of(survey: Survey) -> str:
    """The survey in a few words."""
    return f"{survey.texts} texts, {survey.tokens} tokens"


def survey_remarks(survey: Survey) -> tuple[str, ...]:
    """What a reader must know: where the texts are from, what was left out, and how sure the means are."""
    layers = number_ranges({head.layer for head in survey.heads})
    skipped = ", ".join(f"{count} {reason}" for reason, count in survey.skipped.items() if count)
    left_out = survey.left_out
    return (
        f"A survey of layer {layers} over {', '.join(survey.corpus)}.",
        *([f"Left out of the corpus: {skipped}."] if skipped else []),
        *([f"Metrics left out ({UNKNOWN_METRICS}): {', '.join(left_out)}."] if left_out else []),
    )
