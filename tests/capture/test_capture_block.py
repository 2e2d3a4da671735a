"""Blocks in blocks, in threads, and after errors: each hears its own run, and nothing is left behind."""

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules import module as module_hooks

import attnviz
from attnviz.base.errors import AttnvizError
from attnviz.capture.capture_block import PATCHES, CaptureBlock
from attnviz.capture.hooks.observing_mode import GlobalHook, Patch
from attnviz.capture.labels import CaptureOptions
from attnviz.maps.recording import Recording
from attnviz.text.selection import Selection
from tests.conftest import cells

WIDTH, HEADS = 12, 3
mode_stack: Any = torch.overrides._get_current_function_mode_stack
CAPTURE = Path(attnviz.__file__).parent / "capture"


class Attention(nn.Module):
    """Self-attention by the kernel or by hand."""

    def __init__(self, by_hand: bool = False) -> None:
        super().__init__()
        self.project, self.num_heads, self.by_hand = nn.Linear(WIDTH, 3 * WIDTH), HEADS, by_hand

    def forward(self, x: Tensor) -> Tensor:
        queries, keys, values = self.project(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        if self.by_hand:
            mixed = (queries @ keys.transpose(-1, -2)).softmax(-1) @ values
        else:
            mixed = functional.scaled_dot_product_attention(queries, keys, values)
        output: Tensor = x + mixed.transpose(1, 2).flatten(2)
        return output


class Mixed(nn.Module):
    """Every way to attend, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            [
                nn.TransformerEncoderLayer(WIDTH, HEADS, 20, batch_first=True),
                nn.MultiheadAttention(WIDTH, HEADS, batch_first=True),
                Attention(by_hand=True),
                Attention(),
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, x, x)[0] if isinstance(layer, nn.MultiheadAttention) else layer(x)
        return x


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    return Mixed().eval()


@pytest.fixture(scope="module")
def x() -> Tensor:
    return torch.randn(1, 5, WIDTH, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def alone(model: nn.Module, x: Tensor) -> Recording:
    with torch.no_grad(), attnviz.record(model) as recording:
        model(x)
    return recording


def state() -> dict[str, object]:
    """All that the patches touch, as it is now."""
    patched = {f"{part.find()!r} {part.name}": vars(part.find())[part.name] for part in patches()}
    hooks = {name: dict(value or {}) for name, value in vars(module_hooks).items() if name.startswith("_global_")}
    return patched | hooks | {"modes": mode_stack()}


def patches() -> list[Patch]:
    import transformers.generation.utils  # what is not imported is not replaced
    import transformers.modeling_utils  # noqa: F401

    return [part for part in PATCHES.parts if isinstance(part, Patch) and part.find() is not None]


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    before = state()
    yield
    assert state() == before
    assert PATCHES.users == 0


def same(one: Recording, other: Recording) -> bool:
    """Whether both are of one run: to rounding, as torch may share out its sums otherwise in another thread."""
    everything = slice(0, 5)
    windows = (
        [cells(each, place).window((0, 1, 2), everything, everything) for place in range(4)] for each in (one, other)
    )
    return len(one.maps) == len(other.maps) and all(
        np.allclose(a.weights, b.weights, atol=1e-5) and np.allclose(a.scores, b.scores, atol=1e-5)
        for a, b in zip(*windows, strict=True)
    )


def test_every_name_that_capture_replaces_is_in_the_table() -> None:
    sources = {path.name: path.read_text(encoding="utf-8") for path in CAPTURE.rglob("*.py")}
    replaces = re.compile(r"(?<!object\.__)\bsetattr\(|^\s*(torch|functional|nn)[\w.]* = ", re.MULTILINE)
    assert [name for name, source in sources.items() if replaces.search(source)] == ["observing_mode.py"]
    assert [name for name, source in sources.items() if re.search(r"register_module_\w+\(", source)] == [
        "capture_block.py"
    ]
    outside = state()
    with pytest.raises(AttnvizError, match="was not called"), attnviz.record(nn.Linear(2, 2)):
        inside = state()
    assert all(inside[name] is not outside[name] for name in outside if " " in name)
    assert len(patches()) == len([name for name in outside if " " in name]) == 5


@torch.no_grad()
def test_block_inside_a_block_takes_nothing_from_it(model: nn.Module, x: Tensor, alone: Recording) -> None:
    with attnviz.record(model) as outer, attnviz.record(model, layers=[3]) as inner:
        output = model(x)
    assert same(outer, alone)
    assert inner.layers == (3,)
    assert torch.equal(output, model(x))
    with attnviz.record(model) as outer:
        with pytest.raises(AttnvizError, match="was not called"), attnviz.record(model):
            pass
        with pytest.raises(ZeroDivisionError), attnviz.record(model):
            _ = 1 / 0
        with attnviz.record(model.get_submodule("layers.2")) as part:
            model(x)
    assert same(outer, alone)
    assert np.array_equal(cells(part).window((0,), slice(0, 5), slice(0, 5)).weights, window(alone, 2))


def window(recording: Recording, layer: int) -> Any:
    return cells(recording, layer).window((0,), slice(0, 5), slice(0, 5)).weights


@torch.no_grad()
def test_stop_ends_the_block_that_asked_for_it_alone(model: nn.Module, x: Tensor, alone: Recording) -> None:
    with attnviz.record(model) as outer, attnviz.record(model, layers=[0], stop=True) as inner:
        model(x)
        raise AssertionError("what follows the forward pass does not run")
    assert inner.layers == outer.layers == (0,)
    with attnviz.record(model, layers=[0], stop=True) as outer, attnviz.record(model) as inner:
        model(x)
    assert outer.layers == (0,)
    assert "empty" in repr(inner)


@torch.no_grad()
def test_blocks_that_end_in_another_order_than_they_began(model: nn.Module, x: Tensor, alone: Recording) -> None:
    first, second = attnviz.record(model), attnviz.record(model)
    one, other = first.__enter__(), second.__enter__()
    model(x)
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert same(one, alone)
    assert same(other, alone)


def test_block_is_entered_once(model: nn.Module, x: Tensor) -> None:
    block = attnviz.record(model)
    with pytest.raises(ZeroDivisionError), block:
        _ = 1 / 0
    with pytest.raises(AttnvizError, match=r"a block records once; call record\(\.\.\.\) again"), block:
        raise AssertionError
    with attnviz.record(model) as again:
        model(x)
    assert again.layers == (0, 1, 2, 3)


@torch.no_grad()
def test_each_of_several_threads_hears_its_own_run(model: nn.Module, x: Tensor, alone: Recording) -> None:
    def run(other: bool) -> Recording:
        with torch.no_grad(), attnviz.record(model, layers=[1, 2] if other else None) as recording:
            model(x)
        return recording

    with ThreadPoolExecutor(4) as threads:
        recordings = list(threads.map(run, [False, True] * 12))
    assert all(same(recording, alone) for recording in recordings[::2])
    assert all(recording.layers == (1, 2) for recording in recordings[1::2])


def in_a_thread(work: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(torch.no_grad()(work)).result()


def test_forward_pass_in_another_thread_is_heard(model: nn.Module, x: Tensor, alone: Recording) -> None:
    with attnviz.record(model, layers=range(4), stop=True) as recording:
        output = in_a_thread(lambda: model(x))
    assert same(recording, alone)
    assert torch.equal(output, in_a_thread(lambda: model(x)))
    with pytest.raises(AttnvizError, match="Mixed ran in 2 other threads; record in the thread"), attnviz.record(model):
        in_a_thread(lambda: [model(x), in_a_thread(lambda: model(x))])


def test_run_in_another_thread_has_the_remark_on_its_windows(x: Tensor) -> None:
    class Windowed(Attention):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.reshape(-1, 2, WIDTH)).reshape(x.shape)

    model, x = Windowed().eval(), x[:, :4]
    with attnviz.record(model) as here:
        model(x)
    with attnviz.record(model) as elsewhere:
        in_a_thread(lambda: model(x))
    assert here.remarks == elsewhere.remarks
    assert "2 per text" in str(here.remarks)


def test_pass_of_another_thread_is_not_taken_for_that_of_the_block(
    model: nn.Module, x: Tensor, alone: Recording
) -> None:
    with torch.no_grad(), attnviz.record(model) as recording:
        in_a_thread(lambda: model(2 * x))
        model(x)
        in_a_thread(lambda: model(3 * x))
    assert same(recording, alone)


def test_modules_that_the_model_hands_to_other_threads_are_part_of_its_pass(x: Tensor) -> None:
    class Parallel(Mixed):
        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers[2:]:
                x = in_a_thread(partial(layer, x))
            return x

    model = Parallel().eval()
    with torch.no_grad(), attnviz.record(model) as recording:
        model(x)
    assert recording.layers == (2, 3)


def test_thread_that_runs_what_blocks_of_two_threads_record_is_claimed_by_none(model: nn.Module, x: Tensor) -> None:
    def nested() -> None:
        with pytest.raises(AttnvizError, match="Mixed ran in another thread, while blocks"), attnviz.record(model):
            in_a_thread(lambda: model(x))

    with pytest.raises(AttnvizError, match="while blocks of several threads observe it"), attnviz.record(model):
        in_a_thread(nested)


def test_exception_in_another_thread_leaves_it_as_it_was(model: nn.Module, x: Tensor) -> None:
    with ThreadPoolExecutor(1) as threads:
        with pytest.raises(AssertionError, match="embedding dimension"), attnviz.record(model):
            threads.submit(lambda: model(x[..., :3])).result()
        assert threads.submit(mode_stack).result() == []


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("step", range(len(PATCHES.parts)))
@pytest.mark.parametrize("moment", ["install", "restore"])
def test_crash_while_torch_is_patched_leaves_nothing(
    error: type[BaseException], step: int, moment: str, model: nn.Module, x: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, done = PATCHES.parts[step], list[str]()
    original = getattr(type(part), moment)

    def crash(each: Patch | GlobalHook) -> None:
        if each is part and not done:
            done.append(moment)
            raise error("injected")
        original(each)

    monkeypatch.setattr(type(part), moment, crash)
    with torch.no_grad(), pytest.raises(error, match="injected"), attnviz.record(model):
        model(x)
    assert done == [moment]
    assert PATCHES.users == 0


@torch.no_grad()
@pytest.mark.parametrize("stop", [False, True])
def test_error_of_ours_is_a_refusal_at_the_end_of_the_block_that_says_where(
    stop: bool, model: nn.Module, x: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise IndexError("injected")

    monkeypatch.setattr("attnviz.capture.hooks.torch_functions.kernel_call", crash)
    monkeypatch.setattr("attnviz.capture.hooks.torch_functions.use_call", crash)
    ran, expected = [], model(x)
    refused = r"could not be read because of a fault in attnviz: IndexError: injected \(test_capture_block.py:\d+\)"
    with pytest.raises(AttnvizError, match=refused) as raised, attnviz.record(model, stop=stop):
        ran.append(model(x))
    assert isinstance(raised.value.__cause__, IndexError)
    assert stop or torch.equal(ran[0], expected)


@torch.no_grad()
def test_lack_of_memory_while_a_call_is_looked_at_stays_what_it_is(
    model: nn.Module, x: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("attnviz.capture.hooks.torch_functions.kernel_call", crash)
    monkeypatch.setattr("attnviz.capture.hooks.torch_functions.use_call", crash)
    with pytest.raises(MemoryError), attnviz.record(model):
        model(x)


@torch.no_grad()
def test_modes_of_the_user_see_what_they_see_without_a_block(model: nn.Module, x: Tensor, alone: Recording) -> None:
    from torch.overrides import TorchFunctionMode
    from torch.utils.flop_counter import FlopCounterMode

    class Names(TorchFunctionMode):
        def __init__(self) -> None:
            super().__init__()
            self.names: list[str] = []

        def __torch_function__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
            self.names.append(func.__name__)
            return func(*args, **(kwargs or {}))

    def seen(recorded: bool) -> tuple[list[str], int]:
        with Names() as names, FlopCounterMode(display=False) as flops:
            if recorded:
                with attnviz.record(model) as recording:
                    model(x)
                assert recording.layers == (0, 1, 2, 3)
            else:
                model(x)
        return names.names, flops.get_total_flops()

    assert seen(recorded=True) == seen(recorded=False)


def test_refuses_what_is_no_module() -> None:
    with pytest.raises(AttnvizError, match=r"observed in a torch\.nn\.Module, not in an object of class function"):
        attnviz.record(lambda x: x)  # type: ignore[arg-type]
    with pytest.raises(AttnvizError, match="not in the class Linear"):
        attnviz.record(nn.Linear)  # type: ignore[arg-type]


def test_a_pass_that_ends_early_goes_on_to_the_same_layer_of_another_tower() -> None:
    class Towers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.image_blocks, self.text_blocks = (
                nn.ModuleList(nn.MultiheadAttention(4, 2, batch_first=True) for _ in range(2)) for _ in range(2)
            )

        def forward(self, x: Tensor) -> Tensor:
            for block in (*self.image_blocks, *self.text_blocks):
                x = block(x, x, x)[0]
            return x

    block = CaptureBlock(Towers().eval(), CaptureOptions(selection=Selection(layers=(0,)), stop=True))
    with block, torch.no_grad():
        block.capture.model(torch.randn(1, 3, 4))
    assert [maps.part for maps in block.recording().maps] == ["image_blocks", "text_blocks"]
