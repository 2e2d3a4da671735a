"""Values of a header are read within their limits, and arrays by the prefix of their entry."""

import numpy as np
import pytest

from attnviz.base.errors import AttnvizError
from attnviz.base.tensor_file import MAX_COUNT, Entry, MemoryTensors, StoredEntry


@pytest.mark.parametrize("number", [1 - MAX_COUNT, -1, 0, MAX_COUNT - 1])
def test_integer_may_be_negative(number: int) -> None:
    assert Entry({"first": number}, "a file").integer("first") == number


@pytest.mark.parametrize("number", [-MAX_COUNT, MAX_COUNT, 10**30])
def test_integer_out_of_range_is_refused(number: int) -> None:
    with pytest.raises(AttnvizError, match="has 'first' out of range"):
        Entry({"first": number}, "a file").integer("first")


def test_counts_begin_at_zero_and_differ() -> None:
    assert Entry({"heads": [0, 5]}, "a file").counts("heads") == (0, 5)
    with pytest.raises(AttnvizError, match="repeat a number"):
        Entry({"heads": [1, 1]}, "a file").counts("heads")
    with pytest.raises(AttnvizError, match="are not whole numbers from 0 to"):
        Entry({"heads": [-1]}, "a file").counts("heads")


def test_arrays_of_an_entry_have_its_prefix() -> None:
    numbers = np.arange(3, dtype=np.float32)
    tensors = MemoryTensors({}, {"maps.0.sums": numbers}, "a file")
    np.testing.assert_array_equal(StoredEntry(tensors, "maps.0.", {}).array("sums", "float32", (3,)), numbers)
    with pytest.raises(AttnvizError, match="is missing"):
        StoredEntry(tensors, "maps.1.", {}).array("sums", "float32", (3,))
