"""The list of messages holds every kind of sentence that users read, and nothing else."""

from tools.messages import messages

MODULE = '''
"""Docstring of the module."""

@command()
def show(text: Annotated[str, Option("The text in quotes.", brief="In quotes.")]) -> None:
    """Draw the heads."""
    raise AttnvizError(f"no file {text!r}; give " + "a name of a file")


def caption(names: list[str]) -> str:
    """Docstring of a function."""
    remark("No heads are shown.")
    return ", ".join(names) + " of one model."
'''


def test_list_has_help_options_refusals_and_captions_but_no_docstrings() -> None:
    assert [(each.kind, each.text) for each in messages(MODULE, speaking=True)] == [
        ("command", "Draw the heads."),
        ("option", "In quotes."),
        ("option", "The text in quotes."),
        ("refusal", "a name of a file"),
        ("refusal", "f'no file {text!r}; give '"),
        ("text", "No heads are shown."),
        ("text", " of one model."),
    ]


def test_packages_that_show_nothing_have_refusals_and_options_only() -> None:
    assert {each.kind for each in messages(MODULE, speaking=False)} == {"command", "option", "refusal"}
