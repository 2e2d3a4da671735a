"""Writes the words of a sound with their seconds: ``attnviz show speech.wav -o words.vtt`` (or ``words.json``)."""

from typing import IO, TYPE_CHECKING

from attnviz.base.errors import AttnvizError, option
from attnviz.cli.options import Output
from attnviz.cli.output import deliver_file, words_suffix
from attnviz.cli.subject import Kind, Subject
from attnviz.text.selection import Selection

if TYPE_CHECKING:
    from attnviz.maps.layer_maps import LayerMaps
    from attnviz.maps.recording import Recording


def holds_words(output: Output, subject: Subject) -> bool:
    """True if a file with a name for words will hold words; for JSON, only if the input has a sound."""
    from attnviz.media.timed_words import WORDS_JSON
    from attnviz.metrics.alignment import is_aligned

    if words_suffix(output) != WORDS_JSON or subject.kind is Kind.SOUND or subject.sound is not None:
        return True
    return subject.kind is Kind.RECORDING and any(map(is_aligned, subject.recording().maps))


def write_spoken_words(recording: "Recording", selection: Selection, output: Output) -> None:
    """Writes the words that a decoder read or wrote, each with its seconds in the sound.

    The chosen heads align the words; without a choice, the alignment heads that the model's folder lists.

    Raises:
        AttnvizError: if no head attends from words to a sound, or none is chosen and the folder lists none.
    """
    from attnviz.media.sound import Sound
    from attnviz.media.timed_words import words_bytes
    from attnviz.metrics.alignment import aligned_words

    suffix = words_suffix(output)
    heads = _alignment_heads(recording, selection)
    first_maps, _ = heads[0]  # all of them attend to the same sound
    sound = first_maps.key_tokens.canvas
    assert suffix is not None
    assert isinstance(sound, Sound)
    content = words_bytes(aligned_words(heads), sound.seconds, suffix)

    def write_content(file: IO[bytes]) -> None:
        """Writes the aligned words to an open file."""
        file.write(content)

    deliver_file(output, write_content)


def _alignment_heads(recording: "Recording", selection: Selection) -> "list[tuple[LayerMaps, int]]":
    """Returns the maps and the number of each chosen head that attends from words to a sound."""
    from attnviz.maps.heads import chosen_heads
    from attnviz.metrics.alignment import alignment_heads, is_aligned

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
    return heads
