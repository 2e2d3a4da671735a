"""Work is done for every item of every group, on threads that flush denormals, and an interrupt ends it."""

import threading
from collections.abc import Iterator

import pytest
import torch

from attnviz.streaming.torch_pass import map_parallel, run_parallel
from tests.patience import PATIENCE


@pytest.fixture(autouse=True, params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_every_item_of_every_group_is_worked_on_and_two_groups_are_held_at_once() -> None:
    done: list[tuple[int, int]] = []

    def groups() -> Iterator[int]:
        for group in range(4):
            assert sum(1 for one, _ in done if one <= group - 2) == 5 * max(0, group - 1)
            yield group

    run_parallel(lambda group, item: done.append((group, item)), groups(), range(5), "testing")
    assert sorted(done) == [(group, item) for group in range(4) for item in range(5)]


def test_threads_compute_on_one_processor_without_denormals_and_the_caller_is_left_as_it_was(threads: int) -> None:
    found: list[tuple[int, float]] = []

    def work(group: int, item: int) -> None:
        found.append((torch.get_num_threads(), float(torch.full((1,), 1e-39) * 1)))

    torch.set_flush_denormal(False)
    run_parallel(work, [0], range(3), "testing")
    assert found == [(1, 0.0)] * 3
    assert torch.get_num_threads() == threads
    assert float(torch.full((1,), 1e-39) * 1) > 0


def test_what_is_raised_in_a_thread_ends_all_of_them_and_reaches_the_caller() -> None:
    def work(group: int, item: int) -> None:
        raise KeyboardInterrupt

    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        run_parallel(work, range(3), range(1000), "testing")
    assert threading.active_count() == before


def test_what_is_found_side_by_side_is_in_the_order_of_its_items_and_of_threads_that_compute_alone(
    threads: int,
) -> None:
    together = threading.Barrier(threads, timeout=PATIENCE)

    def work(item: int) -> tuple[int, int, bool]:
        together.wait()  # ends where as many threads are at work
        return item, torch.get_num_threads(), torch.is_inference_mode_enabled()

    assert map_parallel(work, range(4)) == [(item, 1, True) for item in range(4)]
    assert torch.get_num_threads() == threads
