"""Builds the report of a recording: over tokens or groups of them, with single heads or one combined map."""

from dataclasses import replace
from typing import NamedTuple

from attnviz.base.errors import AttnvizError, option
from attnviz.base.progress import working
from attnviz.maps.heads import HeadKey, chosen_heads, head_key
from attnviz.maps.recording import Recording
from attnviz.report.maps import heatmaps
from attnviz.report.picture.options import CONTRIBUTIONS, ReportOptions, refuse_tables_of_surveys
from attnviz.report.picture.report import ExactNumbers, Report
from attnviz.text.named_groups import REMAINDER_LABELS, TOKENS
from attnviz.text.selection import Grouping

ALL = (None, None)  # queries or keys


@working("drawing")
def build_report(recording: Recording, options: ReportOptions) -> Report:
    """Builds the report of a recording: of single heads, or of one map that combines heads if ``reduce`` is given.

    Args:
        recording: the recording to show.
        options: which heads and tokens to show, and how.

    Raises:
        AttnvizError: if the options choose heads or tokens that the recording does not have, or do not fit together.

    Example:
        >>> import attnviz, torch
        >>> module = attnviz.MultiHeadAttention(embed_dim=8, num_heads=2)
        >>> with attnviz.record(module) as recording:
        ...     output = module(torch.rand(1, 5, 8))
        >>> report = attnviz.build_report(recording, attnviz.ReportOptions(selection=attnviz.Selection(heads=(1,))))
        >>> report.caption.split(",")[0]
        'Attention of head 0.1 in MultiHeadAttention'
    """
    if options.filter is not None:
        from attnviz.metrics.measured_heads import with_filtered_texts

        recording = with_filtered_texts(recording, options.filter)
    if options.of == CONTRIBUTIONS:
        from attnviz.maps.derived import contributions_of

        recording = contributions_of(recording)
    refuse_tables_of_surveys(options)
    original, answer = recording, _answer(recording, options)
    if options.grouping != Grouping():
        from attnviz.maps.grouped import regroup

        recording = regroup(recording, options.selection, options.grouping)
    if options.reduce is None:
        report = heatmaps.build_report(recording, options, original, answer.heads)
        report = answer.added_to(report, options)
        units = options.grouping.units
        if options.medium.sorts_heads and units != TOKENS:  # a page, which holds no smaller units
            way_back = f"Rows and columns are {units}; without {option('by', units)} the page has single tokens."
            report = replace(report, remarks=(way_back, *report.remarks))
        if options.look.notes is None or isinstance(report, ExactNumbers):
            return report
        from attnviz.report.maps.story import chapters

        return replace(report, story=chapters(recording, options, original))
    if options.look.notes is not None and options.medium.draws_maps:
        raise AttnvizError(f"{option('notes')} are pinned to single heads; leave {option('reduce')} out")
    if options.look.names is not None:
        raise AttnvizError(
            f"{option('names')} names single heads, and {option('reduce', options.reduce)} makes one map of them; "
            "leave one of them out"
        )
    if options.sort is not None and options.top is None:
        raise AttnvizError(
            f"{option('sort', options.sort)} orders heads, and {option('reduce', options.reduce)} makes one map "
            f"of them; add {option('top', 3)} to combine the first ones, or leave {option('sort')} out"
        )
    from attnviz.report.maps.combined import combined_report

    return answer.added_to(combined_report(recording, options, options.reduce, options.residual), options)


class _Answer(NamedTuple):
    """A sentence on what the last turn or passage looked at most, and the heads in which this stands out."""

    sentence: str = ""
    heads: tuple[HeadKey, ...] = ()

    def added_to(self, report: heatmaps.CellReport, options: ReportOptions) -> heatmaps.CellReport:
        """Returns the report with the sentence before its caption, and as a remark too if the medium is one page."""
        needs_remark = bool(self.sentence) and options.medium.one_page
        remarks = (self.sentence.strip(), *report.remarks) if needs_remark else report.remarks
        answered = replace(report, caption=f"{self.sentence}{report.caption}", remarks=remarks)
        return replace(answered, answer=self.sentence.strip()) if isinstance(answered, ExactNumbers) else answered


def _answer(recording: Recording, options: ReportOptions) -> _Answer:
    """Returns a sentence on the unit that the last unit looked at most, and the heads in which this stands out."""
    units, groups = options.grouping.units, recording.maps[0].key_tokens.groups
    has_turns_or_passages = units != TOKENS and any(name in groups for name in REMAINDER_LABELS)
    if options.of == CONTRIBUTIONS or not (units in REMAINDER_LABELS or has_turns_or_passages):
        return _Answer()
    from attnviz.metrics.unit_shares import most_distinct_heads, unit_frame
    from attnviz.report.heads.head_numbers import strongest_unit_sentence

    heads = chosen_heads(recording, replace(options.selection, queries=ALL, keys=ALL))
    _, shares = unit_frame([(head.maps, head.head) for head in heads], units)
    if not shares:
        return _Answer()
    keys = tuple(head_key(maps, head) for maps, head in most_distinct_heads(shares))
    return _Answer(f"{strongest_unit_sentence(shares, units)} ", keys)
