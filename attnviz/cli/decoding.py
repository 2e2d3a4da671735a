"""Shows what a model wrote, in time: the steps of decoding, films, and spoken words with their seconds."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from attnviz.base.errors import AttnvizError, option
from attnviz.base.options import declared_options
from attnviz.cli.options import Output, refuse_typed
from attnviz.cli.output import deliver_file
from attnviz.cli.subject import Kind, Subject
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import STEPS, ReportOptions, look_of, refuse_changed
from attnviz.text.selection import Grouping, Selection

if TYPE_CHECKING:
    from attnviz.maps.recording import Recording
    from attnviz.report.film import Film

FILM_DPI = 100  # of a film, whose pictures are many
FRAME_SUFFIX = ".png"  # of the pictures of a film


def write_film_of_steps(recording: "Recording", options: ReportOptions, output: Output) -> None:
    """Writes a film with a picture for each token that the model wrote."""
    from attnviz.metrics.steps import measure_steps
    from attnviz.report.film import film_of_steps

    refuse_changed(STEPS, options)
    if options.look.title is not None:
        raise AttnvizError(f"{option('title')} has no effect in a film of steps, whose titles name them; leave it out")
    steps = measure_steps(recording, options.selection, options.grouping.by)
    film_look = replace(options, table=None, selection=Selection(), grouping=Grouping())
    write_film(film_of_steps(recording, steps, film_options(film_look, output)), output)


def write_film_of_recordings(
    paths: Sequence[str], selection: Selection, grouping: Grouping, look: Look, output: Output
) -> None:
    """Writes a film with the maps of several recordings, one recording after another."""
    look_names = look_of("a film")
    read_options = ("text", "recordings", *vars(selection), *vars(grouping), *look_names, *declared_options(Output))
    refuse_typed(read_options, "does not apply to a film; leave it out")
    from attnviz.render.formats import FILMS

    if output.suffix not in FILMS:
        raise AttnvizError("several recordings are a film; use -o film.gif or film.apng, or attnviz compare for two")
    if len(paths) < 2:
        raise AttnvizError(
            f"a film shows two recordings or more, or with {option('table', STEPS)} what one wrote; give another one"
        )
    recordings = []
    for path in paths:
        subject = Subject.of(path)
        if subject.kind not in (Kind.RECORDING, Kind.ARRAYS):
            raise AttnvizError(
                f"{path!r} is no recording; attnviz show TEXT --model MODEL -o run.safetensors makes one"
            )
        recordings.append(subject.recording())
    from attnviz.report.film import film_of_recordings

    film_look = Look(**{name: getattr(look, name) for name in look_names})
    options = ReportOptions(selection=selection, grouping=grouping, look=film_look)
    write_film(film_of_recordings(recordings, paths, film_options(options, output)), output)


def film_options(options: ReportOptions, output: Output) -> ReportOptions:
    """Returns the options of the pictures of a film, with ``FILM_DPI`` pixels per inch unless the user chose a
    number.
    """
    from attnviz.render.formats import options_for_medium

    dpi = FILM_DPI if options.look.dpi is None else options.look.dpi
    frame_look = replace(options.look, dpi=dpi, for_command_line=True)
    return options_for_medium(replace(options, look=frame_look), FRAME_SUFFIX)


def write_film(film: "Film", output: Output) -> None:
    """Writes a film to the output's file or to standard output; the output must have the format of a film."""
    from attnviz.render.film import write_film as write

    assert output.suffix is not None
    deliver_file(output, partial(write, film, output.suffix))


def write_spoken_words(recording: "Recording", selection: Selection, output: Output, suffix: str) -> None:
    """Writes the words that a decoder read or wrote, each with its seconds in the sound.

    The chosen heads align the words; without a choice, the alignment heads that the model's folder lists.
    """
    from attnviz.maps.recording import chosen_heads
    from attnviz.media.sound import Sound
    from attnviz.media.timed_words import words_bytes
    from attnviz.metrics.alignment import aligned_words, alignment_heads, is_aligned

    sound_heads = [(head.maps, head.head) for head in chosen_heads(recording, selection) if is_aligned(head.maps)]
    if not sound_heads:
        raise AttnvizError(
            "words get their seconds from heads that attend to a sound, and there are none here; give a sound, a model "
            f"such as Whisper, and {option('attention', 'cross')}"
        )
    is_chosen = any(part is not None for part in (selection.layers, selection.heads, selection.pairs))
    heads = sound_heads if is_chosen else alignment_heads(recording)
    if not heads:
        raise AttnvizError(
            f"the model's folder lists no alignment heads; choose some with {option('heads', '2.5,3.4')}"
        )
    first_maps, _ = heads[0]  # all of them attend to the same sound
    sound = first_maps.key_tokens.canvas
    assert isinstance(sound, Sound)
    content = words_bytes(aligned_words(heads), sound.seconds, suffix)
    deliver_file(output, lambda file: file.write(content))
