"""What was found on a card: each comparison and figure with its limit, written as JSON and as text."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Finding:
    """A comparison with the CPU, a ratio, or a run of tests.

    Attributes:
        name: what was compared or timed.
        value: the difference, or the ratio; None if it could not be measured.
        limit: the largest value that is right; None if there is no limit.
        note: absolute numbers, or the error.
    """

    name: str
    value: float | None
    limit: float | None
    note: str = ""

    @property
    def verdict(self) -> str:
        """``holds``, ``MISSED``, ``FAILED`` if it could not be measured, or nothing where there is no limit."""
        if self.value is None:
            return "FAILED"
        if self.limit is None:
            return ""
        return "holds" if self.value <= self.limit else "MISSED"

    @property
    def line(self) -> str:
        """The finding in one line."""
        value = "-" if self.value is None else f"{self.value:.3g}"
        limit = "" if self.limit is None else f"at most {self.limit:.3g}"
        return f"{self.name:64} {value:>9}  {limit:15} {self.verdict:6} {self.note}".rstrip()


def write(folder: Path, machine: dict[str, str], findings: Sequence[Finding]) -> tuple[Path, Path]:
    """Writes the findings as JSON and as text, both named by the card and the date.

    Args:
        folder: where the files are written; it is created.
        machine: facts of the machine; ``card`` and ``date`` name the files.
        findings: in the order in which they are listed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    card = "-".join(machine["card"].lower().split())
    table, text = (folder / f"{machine['date']}-{card}.{suffix}" for suffix in ("json", "txt"))
    rows = [asdict(finding) | {"verdict": finding.verdict} for finding in findings]
    table.write_text(json.dumps({"machine": machine, "findings": rows}, indent=1) + "\n", encoding="utf-8")
    facts = [f"{name}: {value}" for name, value in machine.items()]
    text.write_text("\n".join([*facts, "", *(finding.line for finding in findings), ""]), encoding="utf-8")
    return table, text
