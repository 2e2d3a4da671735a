"""Writes the bill of materials of a wheel: what is in it, and what it needs, as CycloneDX JSON."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOR_DEVELOPERS = ("test", "bench", "test-jax")  # extras
PURL = "pkg:pypi/{name}@{version}"


def bill_of_materials(version: str) -> str:
    """Returns CycloneDX 1.6 JSON: attnviz, its requirements, and its optional ones as such.

    Args:
        version: that of attnviz.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    for_users = {each for name in extras if name not in FOR_DEVELOPERS for each in extras[name]}
    required = [component(each, "required") for each in project["dependencies"]]
    optional = [component(each, "optional") for each in sorted(for_users)]
    own = PURL.format(name="attnviz", version=version)
    return json.dumps(
        {
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "version": 1,
            "metadata": {
                "component": {
                    "type": "application",
                    "bom-ref": own,
                    "name": "attnviz",
                    "version": version,
                    "purl": own,
                    "licenses": [{"license": {"id": project["license"]}}],
                }
            },
            "components": [*required, *optional],
            "dependencies": [{"ref": own, "dependsOn": [each["bom-ref"] for each in required]}],
        },
        indent=1,
    )


def component(requirement: str, scope: str) -> dict[str, Any]:
    """Returns the entry of a requirement, such as ``torch>=2.5``: the wheel needs it and does not hold it.

    Args:
        requirement: a name, and the versions that will do.
        scope: ``required`` or ``optional``.
    """
    name, versions = re.fullmatch(r"([\w.-]+)(.*)", requirement).groups()  # type: ignore[union-attr]
    purl = f"pkg:pypi/{name.lower()}"
    properties = [{"name": "attnviz:versions", "value": versions}]
    return {"type": "library", "bom-ref": purl, "name": name, "purl": purl, "scope": scope, "properties": properties}
