"""The counts of a checkout: each line is code, docstring, comment or blank, and each function is counted once."""

from pathlib import Path

from tools import size

SOURCE = '''"""A file.

Of two lines.
"""

# a comment
def outer(keys: int) -> int:
    """Returns one more."""
    def _inner() -> int:
        return keys + 1

    return _inner()


class Head:
    """A class."""

    def _used_twice(self) -> int:
        return 1

    def number(self) -> int:
        return self._used_twice() + self._used_twice()
'''


def test_every_line_is_counted_as_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "file.py").write_text(SOURCE, encoding="utf-8")
    counts = size.counts_of_package(tmp_path)
    assert counts == {
        "lines": 22,
        "lines of code": 9,
        "lines of docstrings": 5,
        "files": 1,
        "classes": 1,
        "functions": 4,
        "private functions": 2,
        "private functions called once": 1,
        f"… with a body of at most {size.MAX_TINY} lines": 1,
    }
