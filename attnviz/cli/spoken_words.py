"""Writes the words of a sound with their seconds: ``attnviz show speech.wav -o words.vtt``."""

from typing import IO, TYPE_CHECKING

from attnviz.base.errors import AttnvizError, option
from attnviz.cli.options import Output
from attnviz.cli.output import deliver_file, words_suffix
from attnviz.text.selection import Selection

if TYPE_CHECKING:
    from attnviz.maps.layer_maps import LayerMaps
    from attnviz.maps.recording import Recording


def write_spoken_words(recording: "Recording", selection: Selection, output: Output) -> None:
    """Writes the words that a decoder read or wrote, aligned by the chosen heads, else by those of the model's folder.

    Raises:
        AttnvizError: if the recording has no words over a sound, or it is not known which heads align.
    """
    from attnviz.media.sound import Sound
    from attnviz.media.timed_words import words_bytes
    from attnviz.metrics.alignment import aligned_words

    suffix = words_suffix(output)
    heads = _aligning_heads(recording, selection)
    sound = heads[0][0].key_tokens.canvas
    assert suffix is not None
    assert isinstance(sound, Sound)
    content = words_bytes(aligned_words(heads), sound.seconds, suffix)

    def write_content(file: IO[bytes]) -> None:
        """Writes the aligned words to an open file."""
        file.write(content)

    deliver_file(output, write_content)


def _aligning_heads(recording: "Recording", selection: Selection) -> "list[tuple[LayerMaps, int]]":
    """Returns the alignment heads: the chosen ones that attend from words to a sound, else those of the model's folder.

    Raises:
        AttnvizError: if no chosen head attends from words to a sound, or none is chosen and the folder names none.
    """
    from attnviz.maps.heads import chosen_heads
    from attnviz.metrics.alignment import alignment_heads, is_aligned

    aligned = [(head.maps, head.head) for head in chosen_heads(recording, selection) if is_aligned(head.maps)]
    if not aligned:
        raise AttnvizError(
            "words have seconds where a decoder attends to a sound, and there is none here; give a sound, a model such "
            f"as Whisper, and {option('attention', 'cross')}"
        )
    is_chosen = any(part is not None for part in (selection.layers, selection.heads, selection.pairs))
    heads = aligned if is_chosen else alignment_heads(recording)
    if not heads:
        raise AttnvizError(
            f"the model's folder names no alignment heads; choose some with {option('heads', '2.5,3.4')}"
        )
    return heads
