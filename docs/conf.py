"""Tells Sphinx how the site is built; ``python -m tools.docs`` calls it."""

from attnviz.version import __version__

project, author = "attnviz", "the attnviz maintainers"
version = release = __version__
copyright = author  # Sphinx's name for the line at the foot of a page
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
extensions += [f"tools.docs.{name}" for name in ("live", "menu", "flags", "types")]
attnviz_menu = {
    "Tutorials": "tutorials/course tutorials/first-look tutorials/induction tutorials/why "
    "tutorials/figures-and-slides tutorials/server tutorials/corpus tutorials/conversations tutorials/protein",
    "How to": "show models heads matters why implicit survey battery compare-and-explain figures page browse vision "
    "speech own-model live replay arrays from-transformerlens",
    "Reference": "reference/command-line reference/python checked-models data gallery glossary",
    "Explanation": "explanation length architecture architecture-walks project",
}
exclude_patterns = ["cards/*"]
myst_enable_extensions = ["deflist", "colon_fence", "dollarmath"]
myst_heading_anchors = 3
smartquotes = False  # which would turn --by into a dash
html_theme = "furo"
html_title = "attnviz"
html_copy_source = False
html_extra_path = ["example.html"]  # the page of the gallery, to be tried
html_static_path, html_css_files = ["_static"], ["site.css"]
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_member_order = "bysource"
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True
