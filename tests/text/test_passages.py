"""Texts of files stand before a question, and each token knows its passage."""

from pathlib import Path

import pytest

from attnviz.base.errors import AttnvizError
from attnviz.text.passages import passage_groups, read_passages
from attnviz.text.tokens import tokenize


@pytest.fixture
def folder(in_folder: Path) -> Path:
    for name, text in (("b.txt", "two  wheels\n"), ("a.txt", "\none king"), ("sub/a.txt", "snow")):
        (in_folder / name).parent.mkdir(exist_ok=True)
        (in_folder / name).write_text(text)
    return in_folder


def test_passages_stand_in_the_order_of_their_names(folder: Path) -> None:
    text, passages = read_passages("*.txt", "who?")
    assert text == "one king\n\ntwo  wheels\n\nwho?"
    assert [(each.label, text[each.start : each.stop]) for each in passages] == [
        ("a.txt", "one king"),
        ("b.txt", "two  wheels"),
        ("question", "who?"),
    ]


def test_files_of_one_name_are_told_apart(folder: Path) -> None:
    _, passages = read_passages("**/*.txt", "who?")
    assert [each.label for each in passages] == ["a.txt", "b.txt", str(Path("sub/a.txt")), "question"]


def test_a_list_of_texts_in_json_is_a_passage_each(folder: Path) -> None:
    (folder / "texts.json").write_text('["one king ", {"title": "bike", "text": "two wheels"}, {"text": "snow"}]')
    text, passages = read_passages("texts.json", "who?")
    assert text == "one king\n\ntwo wheels\n\nsnow\n\nwho?"
    assert [(each.label, text[each.start : each.stop]) for each in passages] == [
        ("1 texts", "one king"),
        ("bike", "two wheels"),
        ("3 texts", "snow"),
        ("question", "who?"),
    ]


@pytest.mark.parametrize("tokenizer", ["word", "char", "byte"])
def test_a_token_belongs_to_the_passage_of_its_first_character(folder: Path, tokenizer: str) -> None:
    text, passages = read_passages("*.txt", "who?")
    tokens = tokenize(text, tokenizer)
    numbers = passage_groups(tokens, passages).numbers
    for number, (start, stop) in zip(numbers.tolist(), tokens.offsets.tolist(), strict=True):
        inside = [place for place, each in enumerate(passages) if each.start <= start and stop <= each.stop]
        assert number == (inside[0] if inside else -1)
    later = tokenize(f"[ {text} ]", tokenizer)
    moved = passage_groups(later, passages, start=2).numbers
    assert [number for number in moved.tolist() if number >= 0] == [
        number for number in numbers.tolist() if number >= 0
    ]


def test_refusals_are_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AttnvizError, match=r"matches no files; give 1 to 1000, such as 'docs/\*.txt'"):
        read_passages("*.md", "who?")
    monkeypatch.setattr("attnviz.text.passages.MAX_PASSAGES", 1)
    with pytest.raises(AttnvizError, match="matches more than 1 files; give a pattern that matches fewer"):
        read_passages("*.txt", "who?")
    (folder / "c.csv").write_text(" \n")
    with pytest.raises(AttnvizError, match=r"'c\.csv' of .* is empty; give files with a text"):
        read_passages("*.csv", "who?")
    monkeypatch.setattr("attnviz.text.passages.MAX_PASSAGES", 2)
    for content, said in (
        ('{"a": 1}', r"is not a list of texts; write \[\"…\", \"…\"\]"),
        ('["a", 7]', r"text 2 of 'list\.json' has no text; write"),
        ('["a", "b", "c"]', "holds 3 passages; give at most 2"),
        ('["a", "\\ud800"]', "the text is not valid UTF-8"),
    ):
        (folder / "list.json").write_text(content)
        with pytest.raises(AttnvizError, match=said):
            read_passages("list.json", "who?")
