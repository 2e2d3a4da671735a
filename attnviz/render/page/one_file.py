"""What every page of one file is made of: its policy, its style, and data that the browser keeps and does not run."""

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from typing import IO, Any

from attnviz.render.page.encoding import base85
from attnviz.render.page.scripts import bundle, read_asset
from attnviz.report.picture.look import Look
from attnviz.report.picture.report import ExactNumbers, SurveyedHeads

POLICY = (
    "default-src 'none'; script-src '{script}'; style-src '{style}'; img-src data:; worker-src blob:; "
    "base-uri 'none'; form-action 'none'"
)
STYLES = {"page": (), "survey": ("survey.css",)}  # of frames, besides the style of all


def opening(
    report: ExactNumbers | SurveyedHeads,
    name: str,
    kind: str,
    remarks: Sequence[str],
    data: Mapping[str, Any],
    more: str = "",
) -> bytes:
    """The page up to the numbers of its heads, so that it can be drawn while those are still being read.

    Args:
        name: of the page's frame and of its script.
        kind: what the page is of, after its title.
        more: what else stands in the frame.
    """
    style, script = style_of(report.look, *STYLES[name]), bundle(f"{name}.js")
    fields = {
        "policy": policy_of(script, style),
        "title": html.escape(report.title),
        "kind": kind,
        "caption": html.escape(report.caption),
        "remarks": "".join(f"<li>{html.escape(remark)}</li>" for remark in remarks),
        "more": more,
        "scheme": report.look.theme or "light dark",
        "style": style,
        "data": script_json(data),
        "script": script,
    }
    frame = read_asset("start.html") + read_asset(f"{name}.html")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: fields[match[1]], frame).encode()


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
