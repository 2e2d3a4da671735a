"""The examples in the docstrings of the public names."""

import doctest

import pytest

import attnviz
from attnviz.metrics.metrics import METRICS


@pytest.mark.parametrize("name", attnviz.EXPORTS)
def test_docstring_of_a_public_name_has_an_example_that_runs(name: str) -> None:
    tests = doctest.DocTestFinder(recurse=False).find(getattr(attnviz, name), name)
    assert sum(len(test.examples) for test in tests) > 1
    runner = doctest.DocTestRunner(verbose=False)
    report: list[str] = []
    built_in = dict(METRICS)  # to which an example adds one
    for test in tests:
        runner.run(test, out=report.append)
    METRICS.clear()
    METRICS.update(built_in)
    assert not runner.failures, "".join(report)
