"""Looks for options that a command takes and ignores: ``python -m fuzzing.ignored``.

Each option of each command is added to a line that is valid without it. If the answer stays the same and standard
error says nothing about it, the option was dropped: it should be refused, or said to change nothing.
"""

import os
import shlex
import sys
import tempfile
from pathlib import Path
from unittest.mock import patch

import typer.main

from attnviz.cli.commands import app, main

LINES = """\
show 'a b a b'
show 'a b a b' --model trained
show 'a b a' --model trained --logits a
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
"""
VALUES = """\
attention=encoder axes=previous,sink batch=two.txt by=mean cmap=magma color-scale=log context=c dpi=50 dropout=0.3
effects=effects.json embed-dim=8 file=two.txt font-size=20 format=json generate=2 init=uniform keys=0:2 limits=0:0.3
logits=a mark=lines max-size=100kB metric=kl notes=two.txt num-heads=2 num-layers=2 of=contributions pair=c per-slide=2
pool=max queries=0:2 query=b reduce=mean residual=0.3 sample=repeat scale=none seed=3 sets=0.0+1.1 size=4:3
sort=previous step=softmax style=text table=scores temperature=2 theme=dark title=Other token-class=y=a tokenizer=char
top=1 with=c with-model=trained"""
# Options whose values above change nothing, as a number of heads or a device that would be chosen anyway.
SAME = {"all", "bias", "causal", "dense", "device", "dtype", "filter", "head", "heads", "layers", "num-layers"}


def answered(line: str, folder: Path) -> tuple[int, bytes]:
    """Returns the exit code of a command line and its output on both streams."""
    held = [os.dup(stream) for stream in (1, 2)]
    with (folder / "said").open("wb+", buffering=0) as said:
        for stream in (1, 2):
            os.dup2(said.fileno(), stream)
        try:
            code = main(shlex.split(line))
        finally:
            sys.stdout.flush()
            for stream, before in zip((1, 2), held, strict=True):
                os.dup2(before, stream)
                os.close(before)
        said.seek(0)
        return code, said.read()


def dropped(folder: Path) -> list[str]:
    """Returns the command lines with an option that silently changes nothing."""
    values = dict(word.split("=", 1) for word in VALUES.split())
    commands, found = typer.main.get_command(app).commands, []  # type: ignore[attr-defined]
    for line in LINES.splitlines():
        without = answered(line, folder)
        assert without[0] == 0, (line, without)
        for parameter in commands[line.split()[0]].params:
            name, is_flag = parameter.opts[0].removeprefix("--"), getattr(parameter, "is_flag", False)
            if name in SAME or f"--{name}" in line or not (is_flag or name in values):
                continue
            typed = f"{line} --{name}" + ("" if is_flag else f" {shlex.quote(values[name])}")
            if answered(typed, folder) == without:
                found.append(typed)
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name, patch("attnviz.cli.input.is_piped", lambda: False):
        os.chdir(name)
        Path("two.txt").write_text("Life is short\nTime is money\n", encoding="utf-8")
        for line in (
            "record 'Life is short' -o run.safetensors",
            "survey two.txt --model trained -o survey.safetensors",
            "ablate 'a b a b' --model trained -o effects.json",
        ):
            assert main(shlex.split(line)) == 0
        lines = dropped(Path(name))
        print("\n".join(lines) or "every option is seen, refused or said")
        sys.exit(bool(lines))
