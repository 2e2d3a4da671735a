"""Notes which functions of the package each test calls: a plugin of pytest, ``-p tools.called_functions``.

It counts also what a fixture calls for the first test that needs it, and all that a test of hypothesis calls, whose
trace function would hide it from a coverage tool. The file that ``CALLED_FUNCTIONS`` names gets the tests of each
function by ``file:line``, and the tests that fail.
"""

import json
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType

import pytest

VARIABLE = "CALLED_FUNCTIONS"
PACKAGE = Path(__file__).parents[1] / "attnviz"
tests_of_functions: dict[str, list[str]] = defaultdict(list)
failed_tests: set[str] = set()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Notes the functions that a test and its fixtures call."""
    codes: set[CodeType] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            codes.add(frame.f_code)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        return (yield)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        for code in codes:
            if code.co_filename.startswith(str(PACKAGE)):
                path = Path(code.co_filename).relative_to(PACKAGE.parent)
                tests_of_functions[f"{path}:{code.co_firstlineno}"].append(item.nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Notes a test that fails, in itself or in a fixture."""
    if report.failed:
        failed_tests.add(report.nodeid)


def pytest_sessionfinish() -> None:
    """Writes the tests of each function, without those that fail, and the tests that fail."""
    passing = {
        function: [test for test in tests if test not in failed_tests] for function, tests in tests_of_functions.items()
    }
    results = {"tests_by_function": passing, "failed_tests": sorted(failed_tests)}
    Path(os.environ[VARIABLE]).write_text(json.dumps(results), encoding="utf-8")
