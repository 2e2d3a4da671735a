"""Where a call was made: its layer and head by the path of its module, its kind by the module or its name."""

import pytest
import torch
from torch import Tensor, nn

import attnviz
from attnviz.capture.flow.sites import CallingModule, CallSite, LayerNumbering, ModuleIndex


class Attends(nn.Module):
    """Attention, with weights of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(2, 2)


class Around(nn.ModuleDict):
    """A block: attention modules and something else that has weights."""

    def __init__(self, *names: str) -> None:
        super().__init__({name: Attends() for name in names or ("attn",)} | {"mlp": nn.Linear(2, 2)})


def numbered(model: nn.Module, *names: str, single: bool = False) -> list[CallSite]:
    """The sites of calls that modules make in this order; each module, and what is around it, starts once."""
    index = ModuleIndex(model)
    numbering = LayerNumbering(index)
    callers = [index.describe(model.get_submodule(name)) for name in names]
    for module in model.modules():
        numbering.start(module)
    return [numbering.next_site(caller, single) for caller in callers]


def layers(model: nn.Module, *names: str) -> list[int]:
    return [site.layer for site in numbered(model, *names)]


def blocks(names: list[str]) -> nn.ModuleDict:
    return nn.ModuleDict({name: Around() for name in names})


def test_layer_is_the_number_of_the_block_whichever_blocks_attend() -> None:
    model = nn.ModuleDict({"h": nn.ModuleList([Around() for _ in range(6)])})
    assert layers(model, "h.2.attn", "h.5.attn") == [2, 5]


@pytest.mark.parametrize(
    "names", [["block1", "block2", "block3"], ["encoder_layer_0", "encoder_layer_1", "encoder_layer_2"]]
)
def test_numbers_at_the_end_of_names_count_from_zero(names: list[str]) -> None:
    assert layers(blocks(names), *(f"{name}.attn" for name in names)) == [0, 1, 2]


def test_number_in_a_name_without_siblings_is_no_layer() -> None:
    model = nn.ModuleDict({"wav2vec2": nn.ModuleDict({"layers": nn.ModuleList([Around(), Around()])})})
    sites = numbered(model, "wav2vec2.layers.0.attn", "wav2vec2.layers.1.attn")
    assert [(site.layer, site.stack) for site in sites] == [(0, "wav2vec2.layers"), (1, "wav2vec2.layers")]


def test_modules_of_different_names_are_layers_in_order_of_call() -> None:
    model = blocks(["first", "second", "third"])
    assert layers(model, "first.attn", "third.attn", "second.attn") == [0, 1, 2]


def test_blocks_in_lists_within_lists_are_counted_through() -> None:
    stages = nn.ModuleList([nn.ModuleDict({"blocks": nn.ModuleList([Around(), Around()])}) for _ in range(2)])
    names = [f"{stage}.blocks.{block}.attn" for stage in range(2) for block in range(2)]
    assert layers(stages, *names) == [0, 1, 2, 3]


def test_several_attention_modules_of_one_block_are_one_layer() -> None:
    model = nn.ModuleList([Around("time", "space"), Around("time", "space")])
    assert layers(model, "0.time", "0.space", "1.time", "1.space") == [0, 0, 1, 1]


def test_parallel_attention_in_an_inner_list_is_one_layer() -> None:
    model = nn.ModuleList([nn.ModuleList([nn.ModuleList([Attends(), Attends()]), nn.Linear(2, 2)]) for _ in range(2)])
    assert layers(model, "0.0.0", "0.0.1", "1.0.0", "1.0.1") == [0, 0, 1, 1]


def test_two_calls_of_a_module_that_runs_once_are_one_layer_and_told_apart() -> None:
    sites = numbered(nn.ModuleList([Around(), Around()]), "0.attn", "0.attn", "1.attn")
    assert [(site.layer, site.call) for site in sites] == [(0, 0), (0, 1), (1, 0)]
    assert not any(site.repeated_module for site in sites)


def run(numbering: LayerNumbering, model: nn.Module, *names: str) -> list[CallSite]:
    """The sites of modules that run one after another, each with the modules around it that are not running yet."""
    sites = []
    for name in names:
        module = model.get_submodule(name)
        numbering.start(module)
        if isinstance(module, Attends):
            sites.append(numbering.next_site(numbering.modules.describe(module), is_single_head=False))
    return sites


def test_block_that_runs_again_is_the_next_layer_and_said() -> None:
    model = nn.ModuleDict({"groups": nn.ModuleList([Around()])})
    numbering = LayerNumbering(ModuleIndex(model))
    sites = run(numbering, model, *["groups.0", "groups.0.attn"] * 3)
    assert [(site.layer, site.run, site.repeated_module) for site in sites] == [
        (0, 0, ""),
        (1, 0, "groups.0"),
        (2, 0, "groups.0"),
    ]


def test_blocks_that_run_in_turn_again_are_the_next_layers() -> None:
    model = nn.ModuleList([Around(), Around()])
    numbering = LayerNumbering(ModuleIndex(model))
    assert [site.layer for site in run(numbering, model, *["0", "0.attn", "1", "1.attn"] * 2)] == [0, 1, 2, 3]


def test_stack_that_runs_again_reads_another_text_with_the_same_layers() -> None:
    model = nn.ModuleDict({"encoder": nn.ModuleDict({"layers": nn.ModuleList([Around(), Around()])})})
    numbering = LayerNumbering(ModuleIndex(model))
    names = [
        "encoder",
        *(name for layer in "01" for name in (f"encoder.layers.{layer}", f"encoder.layers.{layer}.attn")),
    ]
    sites = run(numbering, model, *names * 2)
    assert [(site.layer, site.run) for site in sites] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert {site.repeated_module for site in sites} == {"", "encoder"}


def test_modules_of_one_head_each_share_a_layer() -> None:
    model = nn.ModuleList([nn.ModuleDict({"heads": nn.ModuleList([Attends() for _ in range(3)])}) for _ in range(2)])
    names = [f"{layer}.heads.{head}" for layer in range(2) for head in range(3)]
    sites = numbered(model, *names, single=True)
    assert [(site.layer, site.head) for site in sites] == [(layer, head) for layer in range(2) for head in range(3)]


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


class TwoCalls(nn.Module):
    """Attention that is called twice in one forward, with other queries."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.other = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        parts = [each(x).unflatten(-1, (3, 2)).transpose(1, 2) for each in (self.project, self.other)]
        mixed = [nn.functional.scaled_dot_product_attention(part, part, part) for part in parts]
        return x + (mixed[0] - mixed[1]).transpose(1, 2).flatten(2)


class Student(nn.Module):
    """Blocks by name, in an encoder that reads two texts."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential()
        self.encoder.block1, self.encoder.block2 = TwoCalls(), TwoCalls()

    def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return self.encoder(a), self.encoder(b)


@torch.no_grad()
def test_calls_of_one_module_go_on_with_its_heads_and_runs_of_an_encoder_are_texts() -> None:
    torch.manual_seed(0)
    model, texts = Student(), (torch.randn(1, 5, 6), torch.randn(1, 7, 6))
    with attnviz.record(model, layers=[1], heads=[1, 4]) as recording:
        model(*texts)
    assert [(maps.layer, maps.heads, maps.item) for maps in recording.maps] == [
        (1, (1,), 0),
        (1, (4,), 0),
        (1, (1,), 1),
        (1, (4,), 1),
    ]
    assert [len(maps.query_tokens) for maps in recording.maps] == [5, 5, 7, 7]
    assert recording.remarks == (
        "encoder ran 2 times in one pass: each run is a separate text, in the order of the runs.",
        "Up to 2 calls in one pass by encoder.block2: the numbers of their heads go on from call to call; "
        "each call may have different tokens.",
    )


def test_module_that_starts_between_two_calls_is_not_repeated() -> None:
    model = nn.ModuleDict({"h": nn.ModuleList([Around()])})
    index = ModuleIndex(model)
    numbering, caller = LayerNumbering(index), index.describe(model.get_submodule("h.0.attn"))
    sites = [numbering.next_site(caller, False)]
    for module in model.modules():
        numbering.start(module)
    sites.append(numbering.next_site(caller, False))
    assert [(site.layer, site.call) for site in sites] == [(0, 0), (0, 1)]


class Product(nn.Module):
    """Attention without weights of its own."""

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        mixed: Tensor = (queries @ keys.mT).softmax(-1) @ values
        return mixed


class HeadLoop(nn.Module):
    """A layer whose heads, or whose passes over its own output, are runs of one module without weights."""

    def __init__(self, product: nn.Module, over_own_output: bool = False) -> None:
        super().__init__()
        self.queries, self.keys = (nn.ModuleList(nn.Linear(6, 6) for _ in range(3)) for _ in range(2))
        self.product, self.over_own_output = product, over_own_output

    def forward(self, x: Tensor) -> Tensor:
        mixed = x
        for project_queries, project_keys in zip(self.queries, self.keys, strict=True):
            source = mixed if self.over_own_output else x
            mixed = mixed + self.product(project_queries(source), project_keys(source), source)
        return mixed


SHARED = Product()


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (HeadLoop(Product()), ["0.0", "0.1", "0.2"]),
        (HeadLoop(Product(), over_own_output=True), ["0.0", "1.0", "2.0"]),
        (nn.Sequential(HeadLoop(Product()), HeadLoop(Product())), ["0.0", "0.1", "0.2", "1.0", "1.1", "1.2"]),
        (nn.Sequential(HeadLoop(SHARED), HeadLoop(SHARED)), ["0.0", "0.1", "0.2", "1.0", "1.1", "1.2"]),
    ],
    ids=["one layer", "over its own output", "two layers", "two layers that share it"],
)
@torch.no_grad()
def test_runs_of_a_module_without_weights_in_one_run_of_its_parent_are_heads(
    model: nn.Module, names: list[str]
) -> None:
    with attnviz.record(model) as recording:
        model(torch.randn(1, 5, 6))
    assert [f"{maps.layer}.{head}" for maps in recording.maps for head in maps.heads] == names
