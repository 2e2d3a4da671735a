"""Runs the notebooks of the documents, without Jupyter, and writes today's outputs into them."""

import ast
import base64
import io
import json
import os
import sys
from collections.abc import Callable
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tools.docs.commands import ROOT, SCREEN, lacking, workplace

NOTEBOOKS = sorted((ROOT / "docs").rglob("*.ipynb"))


def executed(path: Path) -> dict[str, Any]:
    """Returns a notebook with today's outputs: what each cell prints, and the value of its last line, if it has one."""
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    names: dict[str, Any] = {}
    code_cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(code_cells, 1):
        tree, value = ast.parse("".join(cell["source"])), None
        printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
        with workplace() as folder, chdir(folder), patch.dict(os.environ, SCREEN), redirect_stdout(printed):
            last = tree.body[-1]
            if isinstance(last, ast.Expr):
                del tree.body[-1]
            exec(compile(tree, path.name, "exec"), names)  # the notebooks of this repository
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), path.name, "eval"), names)
        cell |= {"execution_count": number, "outputs": []}
        if text := printed.buffer.getvalue().decode():
            cell["outputs"].append({"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)})
        if value is not None:
            draw: Callable[[], bytes] | None = getattr(value, "_repr_png_", None)
            data = {"text/plain": [repr(value)]} if draw is None else {"image/png": base64.b64encode(draw()).decode()}
            result = {"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"}
            cell["outputs"].append(result)
    return notebook


def write(path: Path) -> None:
    """Writes today's outputs into a notebook; one whose real model is not here stays as it was, which is said."""
    if reason := lacking(path.read_text(encoding="utf-8")):
        print(f"{path.name} stays as it was: {reason}", file=sys.stderr)
        return
    path.write_text(json.dumps(executed(path), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
