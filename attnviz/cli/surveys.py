"""Runs or continues the survey that a command line asks for, and shows a saved one full-screen."""

import re
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from attnviz.base.errors import AttnvizError, install, option, or_list
from attnviz.base.printable import remark
from attnviz.cli.options import Output
from attnviz.cli.subject import RECORDING, Kind, Subject
from attnviz.text.selection import Selection

if TYPE_CHECKING:
    from attnviz.models.reading.settings import ModelSettings
    from attnviz.report.picture.look import Look

PARQUET = ".parquet"
TABLES = (PARQUET, ".csv", ".json")
MULTIPLES = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9}


def survey_path(output: Output, resume: bool) -> Path:
    """Returns the path of the file to write the survey to."""
    from attnviz.base.files import refuse_target

    advice = f"use -o survey{RECORDING}, or {or_list(TABLES)} for tables"
    if output.file is None:
        raise AttnvizError(f"a survey is written to a file; {advice}")
    if output.suffix not in (RECORDING, *TABLES):
        raise AttnvizError(f"a survey is a {RECORDING} file, and not {output.file.name!r}; {advice}")
    if output.suffix == PARQUET and find_spec("pyarrow") is None:
        raise AttnvizError(f"{PARQUET} needs pyarrow; run {install('corpus')}, or use .csv")
    if resume and output.file.is_file() and not output.force:
        advice = f"attnviz heads {output.file} lists its heads" if output.suffix == RECORDING else "--force replaces it"
        raise AttnvizError(f"{str(output.file)!r} is finished; {advice}")
    refuse_target(output.file, output.force)
    return output.file


def write_survey(
    paths: tuple[str, ...],
    settings: "ModelSettings",
    selection: Selection,
    path: Path,
    force: bool,
    resume: bool,
    column: str | None = None,
    tokens: str | None = None,
    window: int | None = None,
    token_class: tuple[str, ...] = (),
) -> bool:
    """Surveys a corpus and writes the survey; returns False if another process of the run writes it, else True.

    The paths are files, folders, patterns, or ``-``. The last four options are for texts, as the user typed them.
    Prints remarks on a replaced checkpoint, and on texts and metrics that were left out.
    """
    from attnviz.corpus.batches import CorpusPictures, picture_files
    from attnviz.corpus.read import STANDARD_INPUT, CorpusReader
    from attnviz.corpus.token_classes import parse_classes

    if not paths:
        raise AttnvizError(f"no corpus given; give a file, a folder or {STANDARD_INPUT} for standard input")
    limit = None
    if tokens is not None:
        text = tokens.strip().lower().replace("_", "")
        match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?)([kmbg]?)", text, re.ASCII)
        limit = int(float(match[1]) * MULTIPLES[match[2]]) if match else 0
        if limit < 1:
            raise AttnvizError(f"{option('tokens')} {tokens!r} is not a number of tokens; give one such as 500k or 10M")
    pictures = picture_files(paths)
    if pictures:
        of_texts = {"column": column, "tokens": tokens, "window": window, "token_class": token_class}
        name = next((name for name, value in of_texts.items() if value), None)
        if name is not None:
            raise AttnvizError(f"{option(name)} is for texts, and the corpus holds pictures; leave it out")
    classes = parse_classes(token_class)
    texts = None if pictures else CorpusReader(paths, column)
    from attnviz.base.machine import refuse_little_memory

    refuse_little_memory()
    from attnviz.corpus.batches import SurveyOptions
    from attnviz.corpus.saved import checkpoint_path, refuse_other_file, remove_checkpoint, save_survey
    from attnviz.corpus.survey_batch import open_survey_model
    from attnviz.corpus.survey_corpus import SurveyRun, device_of_process, open_processes
    from attnviz.corpus.survey_frame import save_tables

    saved_settings = {
        "column": column,
        "window": window,
        "tokens": limit,
        "token_class": list(token_class),
        "layers": _as_text(selection.layers),
        "heads": _as_text(selection.heads or selection.pairs),
        "model": settings.model,
        "dtype": settings.dtype,
    }
    options = SurveyOptions(
        selection=selection,
        custom_classes=classes,
        tokens=limit,
        window=window,
        settings=saved_settings,
        corpus=paths,
        pictures=bool(pictures),
    )
    checkpoint = checkpoint_path(path)
    refuse_other_file(checkpoint)
    with open_processes() as processes:
        if checkpoint.is_file() and not resume and processes.is_first:
            remark(f"replacing {str(checkpoint)!r} of an unfinished survey; --resume continues it instead")
        model = open_survey_model(
            replace(settings, device=device_of_process(settings.device)), selection, window, bool(pictures)
        )
        # The first process reports what all read.
        corpus = texts or CorpusPictures(pictures, model, remark if processes.is_first else lambda line: None)
        survey = SurveyRun(model, options, processes, checkpoint).run(corpus, resume)
        if survey is None:
            return False
        save = save_survey if path.suffix.lower() == RECORDING else save_tables
        save(survey, path, force)
        remove_checkpoint(checkpoint)
    skipped_counts = [f"{count} {reason}" for reason, count in survey.skipped.items() if count]
    if skipped_counts:
        remark(f"left out of the corpus: {', '.join(skipped_counts)}")
    if survey.omitted_metrics:
        remark(f"left out metrics that this version or the checkpoint lacks: {', '.join(survey.omitted_metrics)}")
    return True


def browse_survey_file(path: Path, selection: Selection, look: "Look") -> int:
    """Shows a survey full-screen until the user quits, and returns the exit code.

    A text that the user opens is recorded and shown in the inspector.
    """
    from attnviz.browse.start import browse, browse_survey, names_to_begin_with
    from attnviz.browse.survey.listing import SurveyView
    from attnviz.cli.runs import record
    from attnviz.corpus.saved import load_survey
    from attnviz.report.picture.options import ReportOptions
    from attnviz.report.survey.tables import refuse_text_options

    refuse_text_options(ReportOptions(selection=selection))
    survey = load_survey(path)
    view = SurveyView(survey, selection, given_names=names_to_begin_with(look))
    opened_line = None  # the line of the list whose text was opened last
    kind = Kind.IMAGE if survey.example_noun == "pictures" else Kind.TEXT
    _ = view.rows  # refuses heads that the survey lacks before the screen opens
    while True:
        opened_text, exit_code = browse_survey(
            view, look, path, lambda text: record(Subject(text, kind), survey.model_settings, Selection()), opened_line
        )
        if opened_text is None:
            return exit_code
        view, opened_line = opened_text.view, opened_text.line
        browse(opened_text.recording, None, Selection(), look, address=opened_text.address)


def _as_text(numbers: object) -> str | None:
    """Returns a choice of layers or heads as a checkpoint stores it; ``None`` for no choice."""
    return None if numbers is None else repr(numbers)
