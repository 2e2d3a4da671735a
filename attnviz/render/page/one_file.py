"""What every page of one file is made of: its policy, its style, and data that the browser keeps and does not run."""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from typing import IO, Any

from attnviz.render.page.encoding import base85
from attnviz.render.page.scripts import read_asset
from attnviz.report.look import Look

POLICY = (
    "default-src 'none'; script-src '{script}'; style-src '{style}'; img-src data:; worker-src blob:; "
    "base-uri 'none'; form-action 'none'"
)


def filled(name: str, fields: Mapping[str, str]) -> str:
    """The page's frame with its fields, each standing as ``{{name}}`` in it."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: fields[match[1]], read_asset(name))


def policy_of(script: str, style: str) -> str:
    """The policy that allows this script and this style, and nothing from elsewhere."""
    return POLICY.format(script=_digest(script), style=_digest(style))


def style_of(look: Look, *more: str) -> str:
    """The page's style, and that of more files: as the reader's system is, or as the look says."""
    style = "\n".join(map(read_asset, ("page.css", *more)))
    if look.theme is None:
        return style
    condition = "all" if look.theme == "dark" else "not all"
    return style.replace("(prefers-color-scheme: dark)", condition).replace("light dark;", f"{look.theme};")


def write_data(file: IO[bytes], name: str, content: bytes) -> None:
    """Writes an element that the browser keeps as it is and does not run."""
    file.write(b'<script type="text/plain" id="%s">%s</script>\n' % (name.encode(), content))


def text85(content: bytes) -> str:
    """The bytes in characters."""
    return base85(content).decode("ascii")


def script_json(value: Mapping[str, Any]) -> str:
    """JSON in which nothing can end a script element or start a comment."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c").replace(">", "\\u003e")


def _digest(content: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode('ascii')}"
