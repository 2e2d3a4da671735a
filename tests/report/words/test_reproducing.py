"""A command that is copied from a page holds nothing that a shell would obey when it is pasted."""

import pytest

from attnviz.report.words.reproducing import head_command, reproducing_command

HOSTILE = "a\x1b[201~\x15touch PWN\nb"  # ends a bracketed paste, clears the line, and is run


def test_a_plain_text_has_its_command() -> None:
    assert head_command("a 'b'", {"model": "trained"}, "trained") == (
        """attnviz show 'a '"'"'b'"'"'' --model trained --heads""",
        "",
    )
    assert reproducing_command({"recording": {"text": "a b", "settings": {"model": "trained"}, "model": "trained"}})[
        "input"
    ] == ("attnviz show 'a b' --model trained")


@pytest.mark.parametrize(
    ("text", "model", "context"),
    [(HOSTILE, "trained", "c"), ("a b", HOSTILE, "c"), ("a b", "trained", HOSTILE), ("a b", "a\u202eb", "c")],
)
def test_control_characters_have_no_command(text: str, model: str, context: str) -> None:
    settings = {"model": model, "context": context}
    assert head_command(text, settings, model) == ("", "")
    shown = reproducing_command({"recording": {"text": text, "settings": settings, "model": model}})
    assert shown["input"] == "attnviz show run.safetensors"
