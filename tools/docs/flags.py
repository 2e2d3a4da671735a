"""Keeps options such as ``--model`` and numbers such as ``95 %`` on one line of the page.

Browsers break a line after a hyphen and before a per cent sign.
"""

import re
from typing import Any

from sphinx.application import Sphinx

COMMANDS = re.compile(r'(?<=<div class="highlight-)(?:sh|console) .*?</pre>', re.DOTALL)
INLINE = re.compile(r'<span class="pre">(?=--?[a-z][a-z-]*</span>)')
BLOCK = re.compile(r"(<pre>.*?</pre>)", re.DOTALL)
NUMBER = re.compile(r"\b(?:\d[\d.]* %|\de-\d+|GPT-\d)(?!\w)(?![^<]*>)")
FLAG = re.compile(r"(?<![\w-])--?[a-z][a-z-]*(?![\w-])(?![^<]*>)")  # within text, not within a tag


def with_unbroken_flags(body: str) -> str:
    """Returns the HTML of a page with each option in commands and inline code in an element of the class ``flag``."""
    inline = INLINE.sub('<span class="pre flag">', with_unbroken_numbers(body))
    return COMMANDS.sub(lambda block: FLAG.sub(r'<span class="flag">\g<0></span>', block[0]), inline)


def with_unbroken_numbers(body: str) -> str:
    """Returns the HTML with ``95 %``, ``1e-6`` and ``GPT-2`` of its prose in an element of the class ``flag``."""
    parts = BLOCK.split(body)  # a block of code after each part of prose
    parts[::2] = [NUMBER.sub(r'<span class="flag">\g<0></span>', part) for part in parts[::2]]
    return "".join(parts)


def mark_flags(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Marks the options and numbers of a page before Sphinx writes it."""
    if "body" in context:
        context["body"] = with_unbroken_flags(context["body"])


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the marks with Sphinx."""
    app.connect("html-page-context", mark_flags)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
