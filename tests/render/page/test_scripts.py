"""Modules joined to one script: in order, each name once, and nothing imported that is not there or not used."""

import re
from graphlib import CycleError
from importlib.resources import files

import pytest

from attnviz.render.page.scripts import ScriptModule, bundle, read_asset

ENTRIES = ("page.js", "why_page.js", "worker.js", "survey.js", "changes.js")
ASSETS = sorted(file.name for file in (files("attnviz.render.page") / "assets").iterdir() if file.name.endswith(".js"))


def joined(**modules: str) -> str:
    """The script of ``a.js`` and what it imports."""
    return bundle("a.js", lambda name: modules[name.removesuffix(".js")])


def test_module_stands_after_what_it_imports_without_import_export_documentation_and_comments() -> None:
    script = joined(
        a='/** Says so. */\n\nimport { b } from "./b.js";\n\nconst a = b(/** @type {number} */ (1));\n',
        b="/**\n * Adds one.\n *\n * @param {number} x\n */\nexport function b(x) {\n  return x + 1; // more\n}\n",
    )
    assert script == '"use strict";\n// b.js\nfunction b(x) {\n  return x + 1;\n}\n\n// a.js\nconst a = b((1));\n'


def test_refuses_one_name_for_two_things() -> None:
    a = 'import { b } from "./b.js";\nfunction help() {}\nb();\n'
    with pytest.raises(ValueError, match=r"a\.js and b\.js both declare help"):
        joined(a=a, b="const help = 1;\nexport function b() {}\n")


@pytest.mark.parametrize("b", ["const b = 1;\n", "export const c = 1;\n", "// export const b = 1;\n"])
def test_refuses_an_import_that_is_not_exported(b: str) -> None:
    with pytest.raises(ValueError, match=r"a\.js imports b, not exported by b\.js"):
        joined(a='import { b } from "./b.js";\nb();\n', b=b)


def test_refuses_an_import_that_is_not_used() -> None:
    with pytest.raises(ValueError, match=r"a\.js imports b, .* not used"):
        joined(a='import { b } from "./b.js";\n', b="export const b = 1;\n")


def test_refuses_modules_that_import_each_other() -> None:
    a = 'import { b } from "./b.js";\nexport const a = b;\n'
    b = 'import { a } from "./a.js";\nexport const b = a;\n'
    with pytest.raises(CycleError, match=r"a\.js"):
        joined(a=a, b=b)


@pytest.mark.parametrize(
    "line", ['import * as b from "./b.js";', "export { b };", "export default b;", 'import "./b.js";']
)
def test_refuses_other_imports_and_exports(line: str) -> None:
    with pytest.raises(ValueError, match="only names in braces are imported, and only statements exported"):
        joined(a=f"{line}\n")


@pytest.mark.parametrize("entry", ENTRIES)
def test_joined_script_holds_nothing_that_ends_its_element(entry: str) -> None:
    assert not re.search(r"</script|<!--|/\*|^(import|export)\b", bundle(entry), re.IGNORECASE | re.MULTILINE)


def test_every_module_is_joined_and_every_export_imported() -> None:
    modules = {name: ScriptModule(name, read_asset(name)) for name in ASSETS}
    scripts = "".join(bundle(entry) for entry in ENTRIES)
    assert {name for name in ASSETS if f"// {name}\n" not in scripts} == {"types.js"}
    imports = [item for module in modules.values() for item in module.imports.items()]
    for file, module in modules.items():
        exported = {name for name, is_exported in module.statements.items() if is_exported}
        assert exported == {name for other, names in imports if other == file for name in names}, file
