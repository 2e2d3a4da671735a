"""Gives the site its menu, which the page of the documents' list would show as raw text on a repository's own pages."""

from sphinx.application import Sphinx

TOCTREE = """
```{{toctree}}
:caption: {caption}
:hidden:

{names}
```
"""


def insert_menu(app: Sphinx, document: str, text: list[str]) -> None:
    """Adds the menu of ``conf.py`` to the first page, when Sphinx reads it."""
    if document == "index":
        for caption, names in app.config.attnviz_menu.items():
            text[0] += TOCTREE.format(caption=caption, names="\n".join(names.split()))


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the menu with Sphinx."""
    app.add_config_value("attnviz_menu", {}, "env", types=(dict,))
    app.connect("source-read", insert_menu)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
