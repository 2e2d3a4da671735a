"""A batch is a text on each line, or a table whose columns name the text and the token to explain."""

import json
import re
import shlex
import signal
from pathlib import Path

import pytest

from attnviz.base.errors import AttnvizError
from attnviz.cli.commands import main
from attnviz.cli.subject import ANSWER_COLUMNS, BatchPrompt, read_prompts
from tests.streams import Streams

MARY, LIFE = "When Mary, “the cook”,\nand John", "Life is\u2028short"
TABLES = {
    "p.csv": f'\ufeffid,token,text,versus\n7," Mary","{MARY}"," John"\n\n8,,{LIFE}\n',
    "p.TSV": f'text\tversus\ttoken\n"{MARY}"\t John\t Mary\r\n\r\n{LIFE}\t\t\n',
    "p.jsonl": (
        '{"token": " Mary", "text": "When Mary, “the cook”,\\nand John", "versus": " John"}\n\n'
        f'{{"text": "{LIFE}", "versus": null, "id": 3}}\n'
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_each_kind_of_table_gives_the_same_prompts(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(TABLES[name].encode())
    mary, life = read_prompts(path, ANSWER_COLUMNS)
    assert (mary.text, mary.token, mary.versus) == (MARY, " Mary", " John")
    assert (life.text, life.token, life.versus) == (LIFE, None, None)
    lines = {"p.csv": (2, 5), "p.TSV": (2, 5), "p.jsonl": (1, 3)}[name]
    assert [prompt.place for prompt in (mary, life)] == [f"{str(path)!r}, line {line}" for line in lines]


def test_a_line_of_another_file_is_a_text(tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("text,token\n \n  two, words\n", encoding="utf-8")
    found = read_prompts(path, ANSWER_COLUMNS)
    assert found == [
        BatchPrompt("text,token", f"{str(path)!r}, line 1"),
        BatchPrompt("  two, words", f"{str(path)!r}, line 3"),
    ]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (ANSWER_COLUMNS, "the column id"),
        ((), "the columns id, token, versus"),
    ],
)
def test_columns_that_a_command_does_not_read_are_named(
    tmp_path: Path, columns: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.csv"
    path.write_text("id,text,token,versus,corrupt\n1,a b,a,b,a c\n", encoding="utf-8")
    [prompt] = read_prompts(path, columns)
    assert prompt.corrupt is None
    assert (prompt.token, prompt.versus) == (("a", "b") if columns else (None, None))
    assert capsys.readouterr().err == f"attnviz: not read from {str(path)!r}: {said}\n"


REFUSED = {
    "no-column.tsv": ("txt\tid\na\tb\n", "line 1: no column 'text'; it has 'txt', 'id'; name the columns text, and"),
    "empty.csv": ("", "line 1: no column 'text'; name the columns text"),
    "header.csv": ("text,token\n", "; give a table with a column 'text' and a row for each text"),
    "comma.csv": (
        'text\n"a\nb"\nc, d\n',
        "line 4: 2 cells under 1 columns; name each column, and put a text with a comma in",
    ),
    "twice.csv": ("text,token,token\na,b,c\n", "line 1: several columns 'token'; rename all but one"),
    "open.csv": ('text\nx y\n"a b\n', "line 3: no readable row of a table: unexpected end of data"),
    "blank.csv": ("text,token\nq,t\n ,b\n", "line 3, column 'text': there is no text; write one, or leave"),
    "short.csv": ("token,text\nq,t\nb\n", "line 3, column 'text': there is no text"),
    "number.jsonl": ('{"text": "a"}\n{"text": "a", "token": 5}\n', "line 2, column 'token': 5 is no text; put it in"),
    "list.jsonl": ('{"text": "a"}\n\n["a"]\n', 'line 3: no JSON object; write {"text": "…"}'),
    "cut.jsonl": ('{"text": "a"}\n{"text\n', "line 2 is not valid JSON"),
    "other.jsonl": ('{"text": "a"}\n{"prompt": "a"}\n', "line 2: no column 'text'; it has 'prompt'"),
    "blank.txt": ("\n \n", "; write one text per line"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_names_the_file_the_line_and_the_column(tmp_path: Path, name: str) -> None:
    content, said = REFUSED[name]
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    with pytest.raises(AttnvizError, match=re.escape(said)) as caught:
        read_prompts(path, ANSWER_COLUMNS)
    assert str(path) in str(caught.value)


PAIRS = (("the cat sat. the cat", "sat", "the", "the dog ran. the dog"), ("a b c d a b c", "d", "a", "a b c e a b x"))


def test_an_ablation_measures_each_prompt_of_a_table_by_its_own_tokens(tmp_path: Path, shell: Streams) -> None:
    path, command = tmp_path / "p.csv", ("ablate", "--model", "trained", "--json")
    path.write_text("text,token,versus,corrupt\n" + "".join(f"{','.join(pair)}\n" for pair in PAIRS))
    batch = json.loads(shell.run(*command, "--batch", str(path), "--replace-by", "corrupt", "--queries=-1"))
    changes = {tuple(row["heads"]): row["texts"] for row in batch["effects"]}
    for index, (text, token, versus, corrupt) in enumerate(PAIRS):
        options = ("--token", token, "--versus", versus, "--replace-by", corrupt)
        alone = json.loads(shell.run(*command, text, *options))
        for row in alone["effects"]:
            assert changes[tuple(row["heads"])][index] == pytest.approx(row["effect"], abs=1e-4)
    assert max(map(abs, changes["1.1",])) > 1
    assert "Each text has its own answer, and a token of its own whose logit is subtracted." in batch["remarks"]

    path.write_text("text,corrupt\na b c,a b\n")
    assert f"{str(path)!r}, line 2: the text has 4 tokens and that of --replace-by 3" in shell.refused(
        *command, "--batch", str(path), "--replace-by", "corrupt"
    )
    path.write_text("text,token,corrupt\na b a,b,\na b a,,\n")
    assert "line 2, column 'corrupt': there is no text" in shell.refused(
        *command, "--batch", str(path), "--replace-by", "corrupt"
    )
    path.write_text("text,token\na b a,b\na b a,\n")
    assert "text 2 of 2 has no answer, and others have one" in shell.refused(*command, "--batch", str(path))
    assert "--replace-by corrupt is the column 'corrupt' of a table" in shell.refused(
        *command, "a b a", "--replace-by", "corrupt"
    )


def test_a_behaviour_that_is_stopped_says_that_there_is_no_answer(
    in_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(*given: object, **named: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("attnviz.effects.prompt_runs.explain_prompts", stopped)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background, and by its children
    try:
        assert main(["why", "--batch", "p.csv", "-o", "b.json"]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert "attnviz: stopped before heads are tested, so there is no answer\n" in capsys.readouterr().err
    assert not (in_folder / "b.json").exists()


PROMPTS = "text,token,versus\n" + "".join(f"{a} {b} {c} {a},{b},{c}\n" for a, b, c in ("abc", "kxy", "tqv", "mnp"))
WRONG = {
    "why --batch p.csv --by words": "--batch explains the last token of each prompt through all heads; leave --by out",
    "why --batch p.csv --token b": "--token b is for all prompts, and 'p.csv', line 2 has its own; give one of the two",
    "why --batch p.csv 'a b a'": "TEXT and --batch both give the input; use one of them",
    "why --batch p.txt": "3 prompts are too few for a behaviour, since heads are chosen on one half and tested on the",
    "why --batch p.csv --replace-by corrupt": "'p.csv', line 2, column 'corrupt': there is no text; write one",
    "why --batch p.txt --replace-by 'a b'": "'p.txt', line 1: the text has 4 tokens and that of --replace-by 3;",
    "why 'a b a' --replace-by corrupt": "--replace-by corrupt is the column 'corrupt' of a table; give one with",
    "why 'a b a' --top 2": "--top 2 chooses heads by their removal on many prompts; give these with --batch",
    "why --batch p.txt --token zebra": "'p.txt', line 1: no token 'zebra' in the text",
}


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.csv").write_text(PROMPTS + PROMPTS.splitlines()[1], encoding="utf-8")
    (tmp_path / "p.txt").write_text("a b a\nc d c\ne f e\n", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_line_with_a_batch_is_refused_in_one_line(
    in_folder: Path, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(shlex.split(line)) == 1
    said = capsys.readouterr().err
    assert WRONG[line] in said
    assert len(said.splitlines()) == 1


def test_why_over_a_batch_counts_a_repeated_prompt_once(in_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", "--batch", "p.csv", "--json", "--controls", "1"]) == 0
    captured = capsys.readouterr()
    content = json.loads(captured.out)
    assert "1 prompt is repeated and left out" in captured.err
    assert [prompt["label"] for prompt in content["prompts"]] == ["b", "x", "q", "n"]
    assert [prompt["versus_label"] for prompt in content["prompts"]] == ["c", "y", "v", "p"]
    assert set(content["leading_heads"]) == {"1.0", "1.1"}
    assert main(["why", "--batch", "p.csv", "-o", "b.csv", "--replace-by", "mean"]) == 0
    assert (in_folder / "b.csv").read_text(encoding="utf-8").startswith("part,kind,module,adds_where_chosen,lost_")
