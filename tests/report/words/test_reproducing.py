"""A command that is copied from a page holds nothing that a shell would obey when it is pasted."""

import pytest

from attnviz.models.reading.example import Example
from attnviz.models.reading.settings import ModelSettings
from attnviz.models.sources import open_reader
from attnviz.report.words.reproducing import head_command, reproducing_command
from attnviz.text.selection import Selection

HOSTILE = "a\x1b[201~\x15touch PWN\nb"  # ends a bracketed paste, clears the line, and is run


def test_a_plain_text_has_its_command() -> None:
    assert head_command("a 'b'", {"model": "trained"}, "trained") == (
        """attnviz show 'a '"'"'b'"'"'' --model trained --heads""",
        "",
    )
    assert reproducing_command({"recording": {"text": "a b", "settings": {"model": "trained"}, "model": "trained"}})[
        "input"
    ] == ("attnviz show 'a b' --model trained")


def test_the_shape_that_a_built_in_model_records_is_no_option_of_its_command() -> None:
    recording = open_reader(ModelSettings(model="trained")).record(Example("a b a"), Selection())
    assert recording.settings["causal"]
    about = {"text": "a b a", "settings": recording.settings, "model": recording.model}
    assert reproducing_command({"recording": about})["input"] == "attnviz show 'a b a' --model trained"


def test_settings_of_the_seeded_module_are_named_as_the_command_line_names_them() -> None:
    settings = {"model": "seeded", "num_heads": 6, "causal": True}
    command = reproducing_command({"recording": {"text": "a b", "settings": settings, "model": "seeded"}})
    assert command["input"] == "attnviz show 'a b' --set num-heads=6 --causal"


@pytest.mark.parametrize(
    ("text", "model", "context"),
    [(HOSTILE, "trained", "c"), ("a b", HOSTILE, "c"), ("a b", "seeded", HOSTILE), ("a b", "a\u202eb", "c")],
)
def test_control_characters_have_no_command(text: str, model: str, context: str) -> None:
    settings = {"model": model, "context": context}
    assert head_command(text, settings, model) == ("", "")
    shown = reproducing_command({"recording": {"text": text, "settings": settings, "model": model}})
    assert shown["input"] == "attnviz show run.safetensors"
