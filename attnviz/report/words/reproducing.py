"""Writes the command line that draws a picture again, from the settings of its recording or from a saved file."""

import shlex
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from attnviz.base.errors import flag
from attnviz.base.options import declared_options
from attnviz.models.reading.settings import ModelSettings

MAX_TEXT = 400  # characters that a command line quotes
SAVED = "run.safetensors"
SAVED_REMARK = (
    f"{SAVED} stands for the saved recording: attnviz show TEXT -o {SAVED} writes it, or recording.save('{SAVED}')."
)


def reproducing_command(about: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the command that draws a picture again, without the options of the picture, as JSON values.

    If a command cannot hold the text or the model, it draws a saved recording instead.

    Returns:
        ``input``, the command; ``remark``, a sentence on the file names in it, else ""; ``compares``, True for two
        recordings.
    """
    if "recording_a" in about:
        remark = "a.safetensors and b.safetensors stand for the two saved recordings."
        return {"input": "attnviz compare a.safetensors b.safetensors", "remark": remark, "compares": True}
    recording = about["recording"]
    text, settings = str(recording["text"]), recording["settings"]
    words = [text, *_setting_words(recording)]
    if not text or len(text) > MAX_TEXT or "model" not in settings or not all(map(str.isprintable, words)):
        return {"input": f"attnviz show {SAVED}", "remark": SAVED_REMARK, "compares": False}
    return {"input": " ".join(["attnviz show", *map(shlex.quote, words)]), "remark": "", "compares": False}


def head_command(text: str, settings: Mapping[str, Any], model: str) -> tuple[str, str]:
    """Returns the command that draws a head over a text of a survey: the parts before and after the head's name.

    Both are "" if the text is empty or too long for a command line, or if a word holds a control character, which a
    shell would obey. A text that begins with a dash stands last, after ``--``.
    """
    if not text or len(text) > MAX_TEXT:
        return "", ""
    words = [*_setting_words({"model": model, "settings": settings}), flag("heads")]
    if not all(map(str.isprintable, (text, *words))):
        return "", ""
    if text.startswith("-"):
        return " ".join(["attnviz show", *map(shlex.quote, words)]), f" -- {shlex.quote(text)}"
    return " ".join(["attnviz show", *map(shlex.quote, [text, *words])]), ""


def _setting_words(recording: Mapping[str, Any]) -> list[str]:
    """Returns the settings that differ from their defaults as options of a command, a word for each name and value."""
    from attnviz.models.sources import used_settings

    words, declarations = list[str](), declared_options(ModelSettings)
    model = str(recording["settings"].get("model", ""))
    used_names = used_settings(model) if model.strip() else ()  # a built-in model records its shape, which is no option
    for name, value in recording["settings"].items():
        if name not in declarations or name not in used_names or value in (None, declarations[name].default):
            continue
        if isinstance(value, (str, int, float)):
            is_absolute_path = name == "model" and PurePath(str(value)).is_absolute()  # of this machine alone
            words += flag(name, PurePath(str(value)).name if is_absolute_path else value).split(" ", 1)
    return words
