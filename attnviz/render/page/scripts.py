"""Joins the page's script modules into one script, in the order of their imports, without import and export."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from graphlib import TopologicalSorter
from importlib.resources import files

IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([\w-]+\.js)";\n', re.MULTILINE)
STATEMENT = re.compile(r"^(export )?(?:async )?(?:function|class|const|let) (\w+)", re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) )", re.MULTILINE)
# JSDoc for the type checker and for readers of the source: comment blocks and casts.
DOCUMENTATION = re.compile(r"^ */\*\*(?s:.*?)\*/\n+|/\*\* @type .*?\*/ ?", re.MULTILINE)
# Comments of a line of their own, and behind code; in a string one would end the string, which no browser reads.
COMMENT = re.compile(r"^ *// .*\n|(?<=[;,(){}\[\]]) // .*$", re.MULTILINE)


@dataclass(frozen=True)
class ScriptModule:
    """One script module of the page."""

    name: str  # the name of its file
    text: str  # the content of its file

    @cached_property
    def imports(self) -> dict[str, set[str]]:
        """The names that it imports, by the file that exports them."""
        return {file: {*re.findall(r"\w+", names)} for names, file in IMPORT.findall(self.text)}

    @cached_property
    def statements(self) -> dict[str, bool]:
        """The names that it declares; True if a name is exported."""
        return {name: bool(export) for export, name in STATEMENT.findall(self.text)}

    @cached_property
    def code(self) -> str:
        """The code without documentation, comments, imports and exports."""
        return EXPORT.sub("", IMPORT.sub("", COMMENT.sub("", DOCUMENTATION.sub("", self.text)))).lstrip()


@cache
def read_asset(name: str) -> str:
    """Returns the text of a file in the page's folder ``assets``."""
    return (files("attnviz.render.page") / "assets" / name).read_text(encoding="utf-8")


@cache
def bundle(entry: str, read: Callable[[str], str] = read_asset) -> str:
    """Returns one script in strict mode, joined from a module and all modules that it imports."""
    modules = _add_with_imports(entry, read, {})
    order = tuple(TopologicalSorter({name: modules[name].imports for name in modules}).static_order())

    owners: dict[str, str] = {}
    for name, module in modules.items():
        if other_statement := re.search(r"^(?:import|export)\b.*", module.code, re.MULTILINE):
            raise ValueError(
                f"{name}: {other_statement[0]}; only names in braces are imported, and only statements exported"
            )
        used_names = {*re.findall(r"\w+", module.code)}
        for file, names in module.imports.items():
            exported_names = {statement for statement, is_exported in modules[file].statements.items() if is_exported}
            bad_names = names - (exported_names & used_names)
            if bad_names:
                raise ValueError(f"{name} imports {', '.join(sorted(bad_names))}, not exported by {file} or not used")
        for statement in module.statements:
            if (owner := owners.setdefault(statement, name)) != name:
                raise ValueError(f"{owner} and {name} both declare {statement}")
    return '"use strict";\n' + "\n".join(f"// {name}\n{modules[name].code}" for name in order)


def _add_with_imports(
    name: str, read: Callable[[str], str], modules: dict[str, ScriptModule]
) -> dict[str, ScriptModule]:
    if name not in modules:
        modules[name] = ScriptModule(name, read(name))
        for imported_name in modules[name].imports:
            _add_with_imports(imported_name, read, modules)
    return modules
