"""The printed numbers of the course notes that attnviz grew from, to their last digit.

Where a note has a bug, the test says so, and reproduces what was printed by settings that mean what they say.
"""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attnviz.attention.modules import (
    AttentionOutput,
    MultiHeadAttention,
    SelfAttention,
    SeparateHeads,
    dot_product,
    masked_softmax,
)
from attnviz.text.tokens import tokenize
from tests.docs.printed_numbers import (
    CAUSAL_WEIGHTS,
    CONTEXT_VECTORS,
    EMBEDDED,
    KEYS,
    QUERIES,
    SCORES,
    assert_prints,
    numbers_in,
    renormalized_softmax,
)

SENTENCE = "Lieft is short, eat dessert first"
QK_DIM, VALUE_DIM = 2, 4


def assert_prints_inf(values: Tensor, printed: str) -> None:
    """As ``assert_prints``, with ``-inf`` among the numbers."""
    finite = values[values.isfinite()]
    words = numbers_in(printed)
    assert [word == "-inf" for word in words] == values.isinf().flatten().tolist()
    assert_prints(finite, " ".join(word for word in words if word != "-inf"))


class Second:
    """The second document's notebook, run from its seed in its order."""

    def __init__(self) -> None:
        torch.manual_seed(123)
        words = SENTENCE.replace(",", "")
        self.tokens = tokenize(words)
        self.embedding = nn.Embedding(6, 3)
        self.features = self.embedding(torch.from_numpy(self.tokens.ids.copy())).detach()[None]  # (1, 6, 3)
        self.head = SelfAttention(3, QK_DIM, VALUE_DIM, bias=False, init="uniform")
        self.call: AttentionOutput = self.head(self.features)
        torch.manual_seed(123)  # cell 6
        self.uniform = SelfAttention(3, QK_DIM, bias=False, init="uniform")
        self.linear = SelfAttention(3, QK_DIM, bias=False)
        self.batch = self.features.repeat(2, 1, 1)

    def again(self, **how: Any) -> AttentionOutput:
        """What the weights of the first head compute in another way."""
        head = SelfAttention(3, QK_DIM, VALUE_DIM, bias=False, **how)
        head.load_state_dict(self.head.state_dict())
        attended: AttentionOutput = head(self.features)
        return attended


@pytest.fixture(scope="module")
def second() -> Second:
    with torch.random.fork_rng(devices=[]):
        return Second()


SECOND: dict[str, tuple[Callable[[Second], Tensor], str]] = {
    "embedding weights": (
        lambda note: note.embedding.weight,
        """[ 0.3374, -0.1778, -0.1690], [ 0.9178,  1.5810,  1.3010], [ 1.2753, -0.2010, -0.1606],
        [-0.4015,  0.9666, -1.1481], [-1.1589,  0.3255, -0.6315], [-2.8400, -0.7849, -1.4096]""",
    ),
    "embedded sentence": (lambda note: note.features, EMBEDDED),
    "keys": (lambda note: note.call.keys, KEYS),
    "queries": (lambda note: note.call.queries, QUERIES),
    "values": (
        lambda note: note.call.values,
        """[-5.1625e-02,  8.1035e-02,  1.7690e-01, -7.9819e-03],
        [-5.4351e-01, -4.9471e-01, -1.0151e+00, -1.2934e+00], [-2.3440e+00, -2.1707e+00, -3.4391e+00, -4.1387e+00],
        [ 3.3215e-01,  6.0992e-01,  1.0510e+00,  7.3947e-01], [ 2.0248e+00,  1.5392e+00,  2.0929e+00,  3.0412e+00],
        [-1.4491e-02,  3.1548e-01, -1.4274e-03, -7.1759e-01]""",
    ),
    "raw scores": (lambda note: dot_product(note.call.queries, note.call.keys), SCORES),
    "raw scores by a scale of 1": (lambda note: note.again(scale=1.0).scores, SCORES),
    "weights": (
        lambda note: note.call.weights,
        """[1.6775e-01, 1.4985e-01, 1.1256e-01, 1.8002e-01, 2.2968e-01, 1.6014e-01],
        [5.1306e-02, 8.6487e-02, 7.7508e-01, 3.4352e-02, 3.4465e-03, 4.9329e-02],
        [5.5658e-04, 2.1586e-03, 9.9665e-01, 1.8917e-04, 2.6631e-07, 4.4152e-04],
        [8.1872e-02, 4.9672e-02, 8.5569e-03, 1.1674e-01, 6.6619e-01, 7.6960e-02],
        [1.1096e-02, 6.1158e-03, 1.9329e-04, 1.9024e-02, 9.4823e-01, 1.5337e-02],
        [1.2501e-01, 1.5636e-01, 4.6546e-01, 1.0391e-01, 3.1637e-02, 1.1761e-01]""",
    ),
    "context vectors": (lambda note: note.call.output, CONTEXT_VECTORS),
    "linear class": (
        lambda note: note.linear(note.features).output,
        """[-0.1454,  0.0954], [-0.2835,  0.0154], [-0.4602, -0.1037], [-0.0793,  0.1291], [-0.1149,  0.1911],
        [-0.2499,  0.0251]""",
    ),
    "weights multiplied by the mask": (
        lambda note: note.call.weights * torch.ones(6, 6).tril(),
        """[1.6775e-01, 0.0000e+00, 0.0000e+00, 0.0000e+00, 0.0000e+00, 0.0000e+00],
        [5.1306e-02, 8.6487e-02, 0.0000e+00, 0.0000e+00, 0.0000e+00, 0.0000e+00],
        [5.5658e-04, 2.1586e-03, 9.9665e-01, 0.0000e+00, 0.0000e+00, 0.0000e+00],
        [8.1872e-02, 4.9672e-02, 8.5569e-03, 1.1674e-01, 0.0000e+00, 0.0000e+00],
        [1.1096e-02, 6.1158e-03, 1.9329e-04, 1.9024e-02, 9.4823e-01, 0.0000e+00],
        [1.2501e-01, 1.5636e-01, 4.6546e-01, 1.0391e-01, 3.1637e-02, 1.1761e-01]""",
    ),
    "causal weights, masked before": (
        lambda note: note.again(causal=True, normalize=masked_softmax).weights,
        CAUSAL_WEIGHTS,
    ),
    "causal weights, renormalized": (
        lambda note: note.again(causal=True, normalize=renormalized_softmax).weights,
        CAUSAL_WEIGHTS,
    ),
}


@pytest.mark.parametrize("what", SECOND)
def test_second_note_prints(what: str, second: Second) -> None:
    computed, printed = SECOND[what]
    assert_prints(computed(second), printed)


def test_second_note_ids_and_axes(second: Second) -> None:
    assert second.tokens.ids.tolist() == [0, 4, 5, 2, 1, 3]
    assert second.features.shape == (1, 6, 3)


def test_second_note_first_class_mixes_values_with_another_heads_weights(second: Second) -> None:
    """Its forward computes ``atten_weights`` and then reads the global ``attn_weights``: printed are that head's."""
    printed = """[ 0.1027, -0.0081], [-0.4864, -1.6660], [-0.6283, -2.0349], [ 0.4821,  1.1554], [ 0.6878,  1.7792],
        [-0.2683, -1.0762]"""
    own = second.uniform(second.features)
    assert_prints(second.call.weights @ own.values, printed)
    assert not torch.allclose(own.output, second.call.weights @ own.values, atol=0.1)


def test_second_note_masked_scores(second: Second) -> None:
    printed = """[-4.5107e-03, -inf, -inf, -inf, -inf, -inf], [ 1.5593e-01,  8.9439e-01, -inf, -inf, -inf, -inf],
        [ 4.7362e-01,  2.3904e+00,  1.1067e+01, -inf, -inf, -inf],
        [-9.6320e-02, -8.0302e-01, -3.2902e+00,  4.0549e-01, -inf, -inf],
        [-3.2614e-01, -1.1686e+00, -6.0539e+00,  4.3631e-01,  5.9644e+00, -inf],
        [ 9.0325e-02,  4.0680e-01,  1.9495e+00, -1.7108e-01, -1.8529e+00, 3.9907e-03]"""
    scores = dot_product(second.call.queries, second.call.keys)
    assert_prints_inf(scores.masked_fill(~torch.ones(6, 6).bool().tril(), -torch.inf), printed)


class Kept(nn.Module):
    """Dropout with a given pattern of what is kept, ``(queries, keys)``."""

    p = 0.5

    def __init__(self, kept: Tensor) -> None:
        super().__init__()
        self.kept = kept

    def forward(self, weights: Tensor) -> Tensor:
        return weights * self.kept / (1 - self.p)


def test_second_note_dropped_out_weights_from_the_printed_pattern(second: Second) -> None:
    """The pattern is the one that the note prints for ones: later versions of torch draw another from its seed."""
    kept = """[2., 2., 2., 2., 2., 2.], [0., 2., 0., 0., 0., 0.], [0., 0., 2., 0., 2., 0.],
        [2., 2., 0., 0., 0., 2.], [2., 0., 0., 0., 0., 2.], [0., 2., 0., 0., 0., 0.]"""
    printed = """[2.0000, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000], [0.0000, 1.2553, 0.0000, 0.0000, 0.0000, 0.0000],
        [0.0000, 0.0000, 1.9946, 0.0000, 0.0000, 0.0000], [0.6375, 0.3868, 0.0000, 0.0000, 0.0000, 0.0000],
        [0.0225, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000], [0.0000, 0.3127, 0.0000, 0.0000, 0.0000, 0.0000]"""
    pattern = torch.tensor([float(word) for word in kept.replace("[", "").replace("]", "").split(",")]).view(6, 6)
    causal = SelfAttention(3, QK_DIM, VALUE_DIM, bias=False, causal=True, dropout=0.5)
    causal.load_state_dict(second.head.state_dict())
    causal.dropout = Kept(pattern > 0)  # type: ignore[assignment]
    assert_prints(causal(second.features).dropped, printed)


def softmax_over_queries(scores: Tensor, visible: Tensor | None) -> Tensor:
    """Softmax over the wrong axis, columns summing to 1, as ``dim=1`` does to ``(batch, queries, keys)``."""
    return scores.softmax(dim=-2)


CAUSAL_CLASS = """[-0.1567, -0.2143], [ 0.2843, -0.2274], [ 0.9825, -0.2057], [-0.2977, -0.2224], [-0.4175, -0.2595],
        [ 0.3927, -0.2499]"""


def test_second_note_causal_class_neither_masks_nor_sums_rows_to_one(second: Second) -> None:
    """The result of its ``masked_fill`` is not assigned, and its softmax runs over queries: printed is just that."""
    torch.manual_seed(123)
    head = SelfAttention(3, QK_DIM, bias=False, normalize=softmax_over_queries)
    call = head(second.batch)
    assert_prints(call.output, CAUSAL_CLASS * 2)
    assert call.output.shape == (2, 6, 2)
    assert torch.allclose(call.weights.sum(dim=-2), torch.ones(2, 1, 6))


def test_second_note_stacked_wrapper(second: Second) -> None:
    """Its heads have the bugs of the causal class above."""
    printed = """[-0.1567, -0.2143, -0.1012,  0.1098], [ 0.2843, -0.2274, -0.2223,  0.0359],
        [ 0.9825, -0.2057, -0.3437, -0.0636], [-0.2977, -0.2224, -0.0402,  0.1407],
        [-0.4175, -0.2595, -0.1181,  0.2790], [ 0.3927, -0.2499, -0.1829,  0.0432]"""
    torch.manual_seed(123)
    heads = SeparateHeads(
        3, 2, qk_dim=2, value_dim=2, bias=False, output_projection=False, normalize=softmax_over_queries
    )
    output = heads(second.batch).output
    assert_prints(output, printed * 2)
    assert output.shape == (2, 6, 4)


def test_second_note_stacked_wrapper_of_width_one(second: Second) -> None:
    """Besides, its scale is the global 1/√2, not 1/√1 as the width of its heads asks."""
    printed = """[ 0.1757, -0.2133], [ 0.0478, -0.2435], [-0.0677, -0.2676], [ 0.2460, -0.1999], [ 0.3556, -0.2085],
        [ 0.0518, -0.2464]"""
    torch.manual_seed(123)
    heads = SeparateHeads(
        3,
        2,
        qk_dim=1,
        value_dim=1,
        bias=False,
        output_projection=False,
        scale=2**-0.5,
        normalize=softmax_over_queries,
    )
    assert_prints(heads(second.batch).output, printed * 2)


def test_second_note_weight_splits(second: Second) -> None:
    """Its scale is the global 1/√2, where heads of width 1 ask for 1."""
    printed = """[ 0.1992,  0.6458], [ 0.1101,  0.8075], [-0.0464,  1.3741], [ 0.1206,  0.8446], [ 0.2225,  0.5039],
        [ 0.0595,  0.8968]"""
    torch.manual_seed(123)
    attention = MultiHeadAttention(
        3, 2, qk_dim=1, value_dim=1, output_dim=2, bias=("output",), causal=True, scale=2**-0.5
    )
    output = attention(second.batch).output
    assert_prints(output, printed * 2)
    assert output.shape == (2, 6, 2)


def test_second_note_products_of_each_head() -> None:
    vectors = torch.tensor(
        [
            [[0.2745, 0.6584, 0.2775, 0.8573], [0.8993, 0.0390, 0.9268, 0.7388], [0.7179, 0.7058, 0.9156, 0.4340]],
            [[0.0772, 0.3565, 0.1479, 0.5331], [0.4066, 0.2318, 0.4545, 0.9737], [0.4606, 0.5159, 0.4220, 0.5786]],
        ]
    )[None]
    first = "[1.3208, 1.1631, 1.2879], [1.1631, 2.2150, 1.8424], [1.2879, 1.8424, 2.0402]"
    other = "[0.4391, 0.7003, 0.5903], [0.7003, 1.3737, 1.0620], [0.5903, 1.0620, 0.9912]"
    assert_prints(dot_product(vectors, vectors), first + other)
    assert_prints(dot_product(vectors[0, 0], vectors[0, 0]), first)
    assert_prints(dot_product(vectors[0, 1], vectors[0, 1]), other)


def test_second_note_count_of_parameters() -> None:
    with torch.device("meta"):
        attention = MultiHeadAttention(768, 12, bias=("output",))
    assert sum(each.numel() for each in attention.parameters() if each.requires_grad) == 2_360_064


class Fourth:
    """The fourth document's notebook, run from its seed in its order."""

    def __init__(self) -> None:
        torch.manual_seed(89)
        self.tokens = torch.randn(1, 3, 5)
        self.head = SelfAttention(5, 16, bias=False)
        self.call: AttentionOutput = self.head(self.tokens)

    def again(self, **how: float) -> AttentionOutput:
        """What the same weights compute in another way."""
        head = SelfAttention(5, 16, bias=False, **how)  # type: ignore[arg-type]
        head.load_state_dict(self.head.state_dict())
        attended: AttentionOutput = head(self.tokens)
        return attended


@pytest.fixture(scope="module")
def fourth() -> Fourth:
    with torch.random.fork_rng(devices=[]):
        return Fourth()


FOURTH: dict[str, tuple[Callable[[Fourth], Tensor], str]] = {
    "input": (
        lambda note: note.tokens,
        """[-0.4138,  0.4192, -0.9875, -0.6275, -1.5819], [ 0.5018, -1.2535, -0.1187, -2.3139, -0.5850],
        [ 0.4416,  0.6665, -0.2620, -1.0138, -1.0609]""",
    ),
    "raw scores": (
        lambda note: note.again(scale=1.0).scores,
        "[ 0.7696, -0.0334,  0.3836], [-0.9035,  0.7536, -1.4572], [ 0.2226, -0.7387, -0.2212]",
    ),
    "scaled scores": (
        lambda note: note.call.scores,
        "[ 0.1924, -0.0083,  0.0959], [-0.2259,  0.1884, -0.3643], [ 0.0557, -0.1847, -0.0553]",
    ),
    "weights": (
        lambda note: note.call.weights,
        "[0.3668, 0.3001, 0.3331], [0.2955, 0.4472, 0.2573], [0.3729, 0.2933, 0.3338]",
    ),
    "sums of weights": (lambda note: note.call.weights.sum(dim=-1), "1.0000, 1.0000, 1.0000"),
    "weights sharpened by 12, a temperature": (
        lambda note: note.again(temperature=1 / 12).weights,
        "[0.7122, 0.0640, 0.2237], [0.0069, 0.9918, 0.0013], [0.7576, 0.0424, 0.2001]",
    ),
}


@pytest.mark.parametrize("what", FOURTH)
def test_fourth_note_prints(what: str, fourth: Fourth) -> None:
    computed, printed = FOURTH[what]
    assert_prints(computed(fourth), printed)


def test_fourth_note_shapes_of_queries_keys_and_values(fourth: Fourth) -> None:
    assert fourth.call.queries[:, 0].shape == fourth.call.keys[:, 0].shape == fourth.call.values[:, 0].shape
    assert fourth.call.values[:, 0].shape == fourth.call.output.shape == (1, 3, 16)


def test_fourth_note_masked_scores_and_weights(fourth: Fourth) -> None:
    hidden = ~torch.ones(3, 3).bool().tril()
    scores = "[ 0.1924, -inf, -inf], [-0.2259,  0.1884, -inf], [ 0.0557, -0.1847, -0.0553]"
    assert_prints_inf(fourth.call.scores.masked_fill(hidden, -torch.inf), scores)
    weights = "[1.0000, 0.0000, 0.0000], [0.3979, 0.6021, 0.0000], [0.3729, 0.2933, 0.3338]"
    assert_prints(fourth.again(causal=True).weights, weights)


def test_fourth_note_shapes_of_its_classes() -> None:
    """Its multi-head class takes each head's width from a global that happens to equal its own ``head_size``."""
    tokens = torch.randn(1, 3, 32)
    assert SelfAttention(32, 8, bias=False)(tokens).output.shape == (1, 3, 8)
    assert SeparateHeads(32, 4, bias=("output",))(tokens).output.shape == tokens.shape


def test_first_note_single_head_shapes() -> None:
    call = SelfAttention(7, 9)(torch.randn(3, 5, 7))
    assert call.output.shape == (3, 5, 9)
    assert call.folded_weights.shape == (3, 5, 5)


def test_first_note_multi_head_shapes_and_folded_weights() -> None:
    """The weights folded as (batch * heads): number 3 belongs to head 0 of the second text, as its pictures assume.

    The pictures themselves apply a softmax to the probabilities again, which flattens them; ours do not.
    """
    attention = MultiHeadAttention(7, 3, qk_dim=3, value_dim=3, output_dim=9, causal=True)
    call = attention(torch.randn(3, 5, 7))
    assert call.output.shape == (3, 5, 9)
    assert call.folded_weights.shape == (9, 5, 5)
    assert torch.equal(call.folded_weights[3], call.weights[1, 0])


def test_first_note_refusal_names_both_numbers() -> None:
    with pytest.raises(ValueError, match=r"embed_dim 10 is not divisible by num_heads 3"):
        MultiHeadAttention(10, 3)


def test_first_note_doubling_the_head_width_sharpens_unless_scaled() -> None:
    """Its first question, measured: the mean of each row's largest weight, for normal queries and keys."""
    torch.manual_seed(0)
    peaks = {}
    for width in (16, 32):
        queries, keys = torch.randn(400, 8, width), torch.randn(400, 8, width)
        for name, scale in (("none", 1.0), ("sqrt", width**-0.5)):
            weights = masked_softmax(dot_product(queries, keys) * scale, None)
            peaks[name, width] = weights.amax(dim=-1).mean().item()
    assert peaks["none", 32] > peaks["none", 16] + 0.03
    assert math.isclose(peaks["sqrt", 32], peaks["sqrt", 16], abs_tol=0.01)


def test_third_note_shapes_at_each_step() -> None:
    """Batch 2, 5 queries, 7 keys, 3 heads, embedding 8, query width 4, value width 6: all different."""
    attention = MultiHeadAttention(8, 3, qk_dim=4, value_dim=6)
    tokens, context = torch.randn(2, 5, 8), torch.randn(2, 7, 8)
    assert attention.query(tokens).shape == (2, 5, 12)
    assert attention.value(context).shape == (2, 7, 18)
    call = attention(tokens, context=context)
    assert call.queries.shape == (2, 3, 5, 4)
    assert call.keys.shape == (2, 3, 7, 4)
    assert call.values.shape == (2, 3, 7, 6)
    assert call.scores.shape == (2, 3, 5, 7)
    assert call.context.shape == (2, 3, 5, 6)
    assert attention.join_heads(call.context).shape == (2, 5, 18)
    assert call.output.shape == (2, 5, 8)


def test_third_note_variance_of_a_product_is_its_width_and_one_when_scaled() -> None:
    torch.manual_seed(0)
    queries, keys = torch.randn(20_000, 1, 64), torch.randn(20_000, 1, 64)
    products = dot_product(queries, keys)
    assert products.var().item() == pytest.approx(64, rel=0.05)
    assert (products * 64**-0.5).var().item() == pytest.approx(1, rel=0.05)


def test_third_note_queries_keys_and_values_from_three_inputs() -> None:
    attention = MultiHeadAttention(8, 2)
    tokens, keys, values = torch.randn(1, 3, 8), torch.randn(1, 4, 8), torch.randn(1, 4, 8)
    call = attention(tokens, context=keys, value_tokens=values)
    assert torch.equal(call.keys, attention.split_heads(attention.key(keys)))
    assert torch.equal(call.values, attention.split_heads(attention.value(values)))


def test_fifth_note_sequence_first_equals_batch_first() -> None:
    first = MultiHeadAttention(8, 2, batch_first=False)
    other = MultiHeadAttention(8, 2)
    other.load_state_dict(first.state_dict())
    tokens = torch.randn(5, 3, 8)
    call = first(tokens)
    assert call.output.shape == (5, 3, 8)
    assert torch.allclose(call.output, other(tokens.transpose(0, 1)).output.transpose(0, 1), atol=1e-6)


@pytest.mark.parametrize("shape", [(5, 5, 3), (1, 5, 3), (5, 5, 1)])
def test_fifth_note_mask_of_queries_keys_batch_broadcasts(shape: tuple[int, int, int]) -> None:
    mask = torch.ones(shape)
    mask[:, 4] = 0
    mask[-1, 1, -1] = 0
    attention = MultiHeadAttention(8, 2, batch_first=False)
    weights = attention(torch.randn(5, 3, 8), mask).weights  # (batch, heads, queries, keys)
    expected = mask.bool().expand(5, 5, 3).permute(2, 0, 1)[:, None].expand(3, 2, 5, 5)
    assert torch.equal(weights > 0, expected)


def test_fifth_note_kept_weights_are_those_after_dropout() -> None:
    """It keeps them as (queries, keys, batch, heads), normalised over the keys."""
    torch.manual_seed(0)
    call = MultiHeadAttention(8, 2, dropout=0.5, batch_first=False)(torch.randn(5, 3, 8))
    kept = call.dropped.detach().permute(2, 3, 0, 1)
    assert kept.shape == (5, 5, 3, 2)
    weights = call.weights.detach().permute(2, 3, 0, 1)
    assert torch.allclose(weights.sum(dim=1), torch.ones(5, 3, 2))
    assert torch.allclose(kept[kept > 0], 2 * weights[kept > 0])
    assert 0 < int((kept == 0).sum()) < kept.numel()


def test_fifth_note_scores_may_be_computed_by_a_subclass_or_a_callable() -> None:
    """Relative attention: a score that also depends on how far apart query and key are."""

    def relative(queries: Tensor, keys: Tensor) -> Tensor:
        distance = torch.arange(queries.shape[-2])[:, None] - torch.arange(keys.shape[-2])
        return dot_product(queries, keys) - distance.abs()

    class Relative(MultiHeadAttention):
        def compute_scores(self, queries: Tensor, keys: Tensor) -> Tensor:
            return relative(queries, keys) * self.scale

    called, derived, plain = MultiHeadAttention(8, 2, score=relative), Relative(8, 2), MultiHeadAttention(8, 2)
    for attention in (derived, plain):
        attention.load_state_dict(called.state_dict())
    tokens = torch.randn(1, 5, 8)
    assert torch.equal(called(tokens).weights, derived(tokens).weights)
    difference = (plain(tokens).scores - called(tokens).scores)[0, 0] / 4**-0.5
    assert torch.allclose(difference[0], torch.arange(5.0), atol=1e-5)
