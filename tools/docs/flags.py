"""Keeps each option of a command, such as ``--model``, on one line of the page: browsers break lines after a hyphen."""

import re
from typing import Any

from sphinx.application import Sphinx

COMMANDS = re.compile(r'(?<=<div class="highlight-)(?:sh|console) .*?</pre>', re.DOTALL)
INLINE = re.compile(r'<span class="pre">(?=--?[a-z][a-z-]*</span>)')
FLAG = re.compile(r"(?<![\w-])--?[a-z][a-z-]*(?![\w-])(?![^<]*>)")  # within text, not within a tag


def with_unbroken_flags(body: str) -> str:
    """Returns the HTML of a page with each option in commands and inline code in an element of the class ``flag``."""
    inline = INLINE.sub('<span class="pre flag">', body)
    return COMMANDS.sub(lambda block: FLAG.sub(r'<span class="flag">\g<0></span>', block[0]), inline)


def mark_flags(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Marks the options of a page before Sphinx writes it."""
    if "body" in context:
        context["body"] = with_unbroken_flags(context["body"])


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the marks with Sphinx."""
    app.connect("html-page-context", mark_flags)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
