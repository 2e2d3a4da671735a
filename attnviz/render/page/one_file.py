"""Builds the parts of every one-file page: its security policy, its style, and data that the browser does not run."""

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
from attnviz.report.picture.report import ExactNumbers, HeadList, SurveyedHeads

POLICY = (
    "default-src 'none'; script-src '{script}'; style-src '{style}'; img-src data:; worker-src blob:; "
    "base-uri 'none'; form-action 'none'"
)
STYLES = {"page": (), "survey": ("survey.css",), "changes": ()}  # style sheets of each frame, besides the common one


def opening(
    report: ExactNumbers | HeadList | SurveyedHeads,
    name: str,
    kind: str,
    remarks: Sequence[str],
    data: Mapping[str, Any],
    frame_html: str = "",
) -> bytes:
    """Returns the HTML of a page up to the packed numbers, so that a browser can draw it before it has read these."""
    sheets = "\n".join(map(read_asset, ("page.css", *STYLES[name])))
    style, script = themed(sheets, report.look), bundle(f"{name}.js")
    # No text in the data can end a script element or begin a comment.
    json_text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c").replace(">", "\\u003e")
    answer = report.answer if isinstance(report, ExactNumbers) else ""
    fields = {
        "policy": POLICY.format(script=digest_of(script), style=digest_of(style)),
        "title": html.escape(report.title),
        "kind": kind,
        "caption": html.escape(report.caption),
        "answer": f'<p class="answer">{html.escape(answer)}</p>' if answer else "",
        "remarks": "".join(f"<li>{html.escape(remark)}</li>" for remark in remarks),
        "more": frame_html,
        "scheme": report.look.theme or "light dark",
        "style": style,
        "data": json_text,
        "script": script,
    }
    frame = read_asset("start.html") + read_asset(f"{name}.html")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: fields[match[1]], frame).encode()


def themed(style: str, look: Look) -> str:
    """Returns a style sheet for the system's theme in the look's theme, if the look names one."""
    if look.theme is None:
        return style
    condition = "all" if look.theme == "dark" else "not all"
    return style.replace("(prefers-color-scheme: dark)", condition).replace("light dark;", f"{look.theme};")


def write_data(file: IO[bytes], name: str, content: bytes) -> None:
    """Writes an element of data, which the browser does not run."""
    file.write(b'<script type="text/plain" id="%s">%s</script>\n' % (name.encode(), content))


def text85(content: bytes) -> str:
    """Returns bytes as text in base 85."""
    return base85(content).decode("ascii")


def digest_of(content: str) -> str:
    """Returns the hash of a script or style as a content security policy names it."""
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode('ascii')}"
