"""Where a call was made: its layer and head by the path of its module, its kind by the module or its name."""

import pytest
from torch import nn

from attnviz.capture.sites import CallingModule, LayerNumbering, ModuleIndex


def numbered(*names: str, single: bool = False, cross: bool = False) -> list[tuple[int, int | None]]:
    numbering = LayerNumbering()
    sites = [numbering.number(CallingModule(nn.Identity(), name, cross), single) for name in names]
    return [(site.layer, site.head) for site in sites]


def test_layer_is_the_first_number_of_the_path() -> None:
    assert numbered("h.2.attn", "h.5.attn.0") == [(2, None), (5, None)]


def test_layer_follows_the_last_where_the_path_has_no_number_or_one_already_taken() -> None:
    assert numbered("attn", "attn", "attn") == [(0, None), (1, None), (2, None)]
    assert numbered("h.0.attn", "h.0.attn", "h.1.attn") == [(0, None), (1, None), (2, None)]


def test_modules_of_one_head_each_share_a_layer() -> None:
    names = [f"blocks.{layer}.heads.{head}" for layer in range(2) for head in range(3)]
    assert numbered(*names, single=True) == [(layer, head) for layer in range(2) for head in range(3)]


@pytest.mark.parametrize(
    ("name", "cross", "part"),
    [("encoder.0.attn", False, "encoder"), ("decoder.0.attn", False, "decoder"), ("decoder.0.attn", True, "cross")],
)
def test_part_of_an_encoder_decoder_is_read_from_the_path(name: str, cross: bool, part: str) -> None:
    assert CallingModule(nn.Identity(), name, cross).part == part


def test_head_count_is_that_of_the_module_or_of_the_one_around_it() -> None:
    model = nn.ModuleDict({"attention": nn.ModuleDict({"inner": nn.Identity()}), "other": nn.Identity()})
    model["attention"].num_heads = 6  # type: ignore[assignment]
    index = ModuleIndex(model)
    inner, other = (index.describe(model.get_submodule(name)) for name in ("attention.inner", "other"))
    assert index.head_count(inner) == 6
    assert index.head_count(other) is None
