"""What maps can give is in their type: nothing else asks which kind they are."""

import re
from dataclasses import replace
from inspect import isabstract
from pathlib import Path
from types import FunctionType

import pytest

import attnviz
from attnviz.maps.cell_maps import DenseMaps, FactoredMaps
from attnviz.maps.grouped import GroupedMaps
from attnviz.maps.layer_maps import CellMaps, LayerMaps
from attnviz.maps.pooled import PooledMaps
from attnviz.metrics.combine import CombinedMaps
from tests.conftest import dense_maps

PACKAGE = Path(attnviz.__file__).parent
MEMBERS = (FunctionType, property, classmethod)
KINDS = (DenseMaps, FactoredMaps, PooledMaps, GroupedMaps, CombinedMaps)


@pytest.mark.parametrize("kind", KINDS)
def test_no_concrete_method_is_overridden(kind: type[LayerMaps]) -> None:
    assert not isabstract(kind)
    ours = [each for each in kind.__mro__ if each.__module__.startswith("attnviz.")]
    members = {name for each in ours for name, value in vars(each).items() if isinstance(value, MEMBERS)}
    for name in (name for name in members if not name.startswith("__")):
        _, *overridden = [vars(each)[name] for each in ours if name in vars(each)]
        assert all(getattr(method, "__isabstractmethod__", False) for method in overridden), name


def test_only_maps_with_single_cells_have_a_window() -> None:
    assert not hasattr(PooledMaps, "window")
    assert {kind for kind in KINDS if issubclass(kind, CellMaps)} == {*KINDS} - {PooledMaps}


def test_no_other_package_asks_which_kind_maps_are() -> None:
    asking = {path for path in PACKAGE.rglob("*.py") if re.search(r"isinstance\([^)]*Maps\b", path.read_text("utf-8"))}
    assert {path.parent.name for path in asking} == {"maps"}


def test_maps_say_what_they_are_without_their_numbers() -> None:
    assert repr(dense_maps(3)) == (
        "DenseMaps(layer 3 in 'layers.3', cross-attention, text 0, heads 0-2, 5 queries x 7 keys)"
    )
    assert repr(replace(dense_maps(3), fidelity=2.3e-7)).endswith("7 keys, within 2e-07 of the model's own output)")
