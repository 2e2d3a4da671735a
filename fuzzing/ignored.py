"""Looks for options that a command takes and ignores: ``python -m fuzzing.ignored``.

Each option of each command is typed beside a line that works without it. The same answer, and no word on the standard
error stream, is an option that was dropped: it should have been refused, or said to change nothing.

``python -m fuzzing.ignored pairs --minutes 60`` types every two options of a command together, in an order drawn from
``--seed``: a traceback, and an option that changes a line alone but not beside the other, are printed.
"""

import argparse
import os
import random
import shlex
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import combinations, takewhile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import typer.main

from attnviz.base.errors import SETTINGS, setting_name
from attnviz.cli.commands import app, main

LINES = """\
show 'a b a b'
show 'a b a b' --model trained
why 'a b a' --token a
show run.safetensors
show survey.safetensors
heads 'a b a b'
heads run.safetensors
heads survey.safetensors
compare 'a b a b' --causal
compare survey.safetensors survey.safetensors
explain 'a b a b'
explain 'a b a b' --model trained
ablate 'a b a b' --model trained
why 'a b. a b' --by sentences
show 'a b a b' --model trained --style steps
"""
PICTURES = """\
show run.safetensors --style arcs -o -.svg
show run.safetensors --style overlay --heads 0.0,0.1 -o -.svg
show run.safetensors --query b -o -.svg
show run.safetensors --style overlay --heads 0.0,0.1 --query b -o -.svg
show big.safetensors --all -o -.svg
show big.safetensors --all -o -.png
show big.safetensors --all
show run.safetensors -o -.svg
show run.safetensors -o -.pptx
show big.safetensors -o -.html
show run.safetensors --style weights -o -.svg
show run.safetensors --reduce mean -o -.svg
show run.safetensors --json
show survey.safetensors --style points:previous,sink -o -.svg
show survey.safetensors --heads 0.0 -o -.svg
show survey.safetensors -o -.svg
show survey.safetensors -o -.html
show survey.safetensors --style pairs
heads survey.safetensors -o -.svg
heads run.safetensors -o -.svg
heads run.safetensors -o -.html
compare run.safetensors other.safetensors -o -.svg
compare run.safetensors other.safetensors -o -.html
compare effects.json effects2.json
compare effects.json effects2.json -o -.svg
compare survey.safetensors survey2.safetensors -o -.html
why 'a b a' --token a -o -.svg
why 'a b. a b' --by sentences -o -.svg
show run.safetensors --style steps -o -.svg
show run.safetensors --style steps -o -.gif
show run.safetensors run.safetensors --heads 0.0 -o -.gif
ablate 'a b a b' --model trained -o -.svg
explain 'a b a b' -o -.html
"""
PAIRED = (
    LINES
    + """\
explain 'a b a b' -o -.md
ablate --model trained
show 'a b a b' -o -.html
heads 'a b a b' -o -.svg
heads --types --model trained --json
"""
)
VALUES = """\
attention=encoder axes=previous,sink batch=two.txt by=mean cmap=magma color-scale=log context=c·d dpi=50 dropout=0.3
effects=effects.json embed-dim=8 file=two.txt font-size=20 format=json generate=2 init=uniform keys=0:2 limits=0:0.3
mark=lines max-size=100kB metric=kl notes=two.txt num-heads=2 num-layers=2 of=contributions pair=c per-slide=2
pool=max queries=0:2 query=b reduce=mean residual=0.3 sample=repeat scale=none seed=3 sets=0.0+1.1 size=4:3
sort=previous step=softmax style=text table=scores temperature=2 theme=dark title=Other token-class=y=a tokenizer=char
top=1 with=c with-model=trained reference=words.vtt names=names.txt passages=two.txt"""
# Options whose values above change nothing, as a number of heads or a device that would be chosen anyway.
SAME = {"all", "bias", "causal", "dense", "device", "dtype", "filter", "head", "heads", "layers", "num-layers"}
SAME_IN_PICTURES = SAME | {"annotate", "dpi", "max-size", "sort", "style", "top"}  # small pictures have all numbers


Answers = dict[str, tuple[int, bytes]]


def answered(line: str, folder: Path) -> tuple[int, bytes]:
    """Returns the exit code of a command line and its output on both streams."""
    saved_streams = [os.dup(stream) for stream in (1, 2)]
    with (folder / "output").open("wb+", buffering=0) as output:
        for stream in (1, 2):
            os.dup2(output.fileno(), stream)
        try:
            code = main(shlex.split(line))
        finally:
            sys.stdout.flush()
            for stream, before in zip((1, 2), saved_streams, strict=True):
                os.dup2(before, stream)
                os.close(before)
        output.seek(0)
        return code, output.read()


def typed_options(line: str) -> dict[str, str]:
    """Returns the options that can be added to a line, by name, as they are typed."""
    values = dict(word.replace("·", " ").split("=", 1) for word in VALUES.split())
    commands: Any = typer.main.get_command(app)
    options: dict[str, str] = {}
    command = commands.commands[line.split(maxsplit=1)[0]]
    for name, declared in command.callback.declared.items():
        setting = setting_name(name)
        if name in SETTINGS and setting not in SAME and f" {setting}=" not in line:
            value = "true" if declared.type is bool else values.get(setting)
            options |= {setting: f"--set {shlex.quote(f'{setting}={value}')}"} if value is not None else {}
    for parameter in command.params:
        name, is_flag = parameter.opts[0].removeprefix("--"), getattr(parameter, "is_flag", False)
        if name not in SAME and f"--{name}" not in line and (is_flag or name in values):
            flag = (parameter.secondary_opts or parameter.opts)[0]  # --no-special, since --special is often the default
            options[name] = flag if is_flag else f"--{name} {shlex.quote(values[name])}"
    return options


def singles(seed: int) -> list[tuple[str, str]]:
    """Returns every line of every kind of picture with each of its options, in an order that the seed draws."""
    results = [(line, option) for line in LINES.splitlines() for option in typed_options(line).values()]
    for line in PICTURES.splitlines():
        results += [(line, option) for name, option in typed_options(line).items() if name not in SAME_IN_PICTURES]
    random.Random(seed).shuffle(results)
    return results


def dropped(tried: Iterable[tuple[str, str]], folder: Path) -> list[str]:
    """Returns the lines with an option that changes nothing, and of which nothing is said."""
    results, answers = [], Answers()
    for line, option in tried:
        without = answers[line] = answers.get(line) or answered(line, folder)
        assert without[0] == 0, (line, without)
        if answered(f"{line} {option}", folder) == without:
            results.append(f"{line} {option}")
    return results


def pairs(seed: int) -> list[tuple[str, str, str]]:
    """Returns every line with every two of its options, in an order that the seed draws."""
    results = [
        (line, first, second)
        for line in PAIRED.splitlines()
        for first, second in combinations(typed_options(line).values(), 2)
    ]
    random.Random(seed).shuffle(results)
    return results


def trouble(line: str, first: str, second: str, folder: Path, answers: Answers) -> str | None:
    """Returns what is wrong with a line that has two options: a traceback, or an option that is lost beside the other.

    An answer that takes both is unlike that to each alone; where one of both is refused or changes nothing alone, or
    both together are refused, nothing is lost. ``answers`` keeps the answers to lines with one option, or none.
    """
    both = f"{line} {first} {second}"
    try:
        together = answered(both, folder)
        if together[0] != 0:
            return None
        alone = (line, f"{line} {first}", f"{line} {second}")
        answers |= {each: answered(each, folder) for each in alone if each not in answers}
        without, one, other = (answers[each] for each in alone)
    except Exception as error:
        return f"{both}: {type(error).__name__}: {error}"
    if any(each[0] != 0 or each == without for each in (one, other)):
        return None
    lost = [option for option, other_alone in ((second, one), (first, other)) if other_alone == together]
    return f"{both}: {lost[0]} is lost" if lost else None


def troubles(tried: Iterable[tuple[str, str, str]], folder: Path) -> Iterator[str]:
    """Yields what is wrong with lines that have two options each."""
    answers = Answers()
    problems = (trouble(line, first, second, folder, answers) for line, first, second in tried)
    return (problem for problem in problems if problem is not None)


@contextmanager
def workplace() -> Iterator[Path]:
    """Within, the working folder is one with the files that the lines name, and nothing is piped."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as name, patch("attnviz.cli.runs.is_piped", lambda: False):
        os.chdir(name)
        try:
            Path("two.txt").write_text("Life is short\nTime is money\n", encoding="utf-8")
            Path("names.txt").write_text("0.0 mover\n0.1 b\n1.0 c\n1.1 d\n", encoding="utf-8")
            Path("words.vtt").write_text("WEBVTT\n\n00:00.000 --> 00:01.000\nhello\n", encoding="utf-8")
            for line in (
                "show 'a b a b. a c' --model trained --of contributions -o run.safetensors",
                "show 'a c a b. a b' --model trained --of contributions -o other.safetensors",
                "show 'Life is short, eat' --set num-layers=5 --set num-heads=6 --set embed-dim=6 -o big.safetensors",
                "survey two.txt --model trained -o survey.safetensors",
                "survey two.txt --model trained --window 3 -o survey2.safetensors",
                "ablate 'a b a b' --model trained -o effects.json",
                "ablate 'a b a b' --replace-by mean --model trained -o effects2.json",
            ):
                assert main(shlex.split(line)) == 0
            yield Path(name)
        finally:
            os.chdir(before)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m fuzzing.ignored", description=__doc__)
    parser.add_argument("what", nargs="?", choices=("pairs",), help="every two options, and not each alone")
    parser.add_argument("--minutes", type=float, default=60.0, help="for the pairs")
    parser.add_argument("--seed", type=int, default=0, help="of their order")
    chosen = parser.parse_args()
    with workplace() as place:
        if chosen.what == "pairs":
            end = time.monotonic() + chosen.minutes * 60
            tried = takewhile(lambda _: time.monotonic() < end, pairs(chosen.seed))
            print("\n".join(lines := list(troubles(tried, place))) or "nothing is lost")
        else:
            lines = dropped(singles(chosen.seed), place)
            print("\n".join(lines) or "every option is seen, refused or said")
    sys.exit(bool(lines))
