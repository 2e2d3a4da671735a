"""Puts the interactive pages into the site: where a document has a still of one, the site has the page itself."""

import posixpath
import shutil
import sys
from pathlib import Path

from sphinx.application import Sphinx

from tools.docs.commands import BLOCK, page_lacks, run

FRAME = """
```{{raw}} html
<iframe src="{uri}" title="{name}" style="width:100%;height:760px;border:1px solid #8884" loading="lazy"></iframe>
<p><a href="{uri}">Open {name} alone</a></p>
```
"""


def insert_pages(app: Sphinx, document: str, text: list[str]) -> None:
    """Replaces the stills of a document by frames with the pages that its commands write, when Sphinx reads it."""
    blocks = BLOCK.finditer(text[0])
    if not app.config.attnviz_runs or not any(block["picture"] and ".html" in block["typed"] for block in blocks):
        return
    if reason := page_lacks(text[0]):
        print(f"{document} shows stills of its pages: {reason}", file=sys.stderr)
        return
    target = Path(app.outdir) / "runs" / document
    target.mkdir(parents=True, exist_ok=True)
    top = posixpath.dirname(app.builder.get_relative_uri(document, "index")) or "."
    for shown in run(text[0], posixpath.basename(document)):
        if shown.picture and shown.file and shown.file.suffix == ".html":
            shutil.copy(shown.file, target)
            frame = FRAME.format(uri=f"{top}/runs/{document}/{shown.file.name}", name=shown.file.name)
            text[0] = text[0].replace(shown.block["image"], frame)


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the frames with Sphinx; documents are read one after another, as all share this process."""
    app.add_config_value("attnviz_runs", True, "env", types=(bool, int, str))
    app.connect("source-read", insert_pages)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
