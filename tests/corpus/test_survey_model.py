"""`attnviz.survey`: the same numbers as of files, and of one's own module."""

from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor, nn
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import attnviz
from attnviz.base.errors import AttnvizError
from attnviz.corpus.survey import Survey
from tests.corpus.examples import MODELS, TEXTS, RandomTexts

WORDS = sorted({word for text in TEXTS for word in text.split()})


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    vocabulary = {word: number for number, word in enumerate(["[PAD]", "[UNK]", *WORDS])}
    inner = Tokenizer(models.WordLevel(vocabulary, "[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    build: Any = PreTrainedTokenizerFast
    return build(tokenizer_object=inner, pad_token="[PAD]", unk_token="[UNK]")


def values(survey: Survey, name: str) -> Any:
    return survey.means[:, [metric.name for metric in survey.metrics].index(name)]


def test_a_model_and_its_tokenizer_give_what_batches_of_the_same_ids_give(tokenizer: Any) -> None:
    model = MODELS["bert"].train()
    of_texts = attnviz.survey(model, tokenizer, [*TEXTS, "", "  "])
    encoded = tokenizer(list(TEXTS), padding=True, padding_side="right", return_tensors="pt")
    halves = [{name: value[part] for name, value in encoded.items()} for part in (slice(0, 2), slice(2, 5))]
    of_batches = attnviz.survey(model, tokenizer, batches=halves)
    assert all(module.training for module in model.modules())
    assert dict(of_texts.skipped) == {"empty": 2}
    assert (of_texts.texts, of_texts.tokens) == (of_batches.texts, of_batches.tokens)
    for name in ("entropy", "previous", "punctuation", "duplicate", "distance"):
        np.testing.assert_allclose(values(of_texts, name), values(of_batches, name), atol=1e-5)


def test_a_survey_of_a_causal_model_computes_no_logits(tokenizer: Any) -> None:
    sizes: dict[str, Any] = {"vocab_size": len(WORDS) + 2, "hidden_size": 8, "intermediate_size": 16}
    sizes |= {"num_hidden_layers": 2, "num_attention_heads": 2, "bos_token_id": None, "eos_token_id": None}
    model: Any = LlamaForCausalLM(LlamaConfig(**sizes))
    model.eval()
    runs = list[str]()
    model.lm_head.register_forward_hook(lambda *_: runs.append("head"))
    attnviz.survey(model, tokenizer, TEXTS)
    encoded = tokenizer(list(TEXTS), padding=True, padding_side="right", return_tensors="pt")
    assert len(attnviz.survey(model, tokenizer, batches=[dict(encoded)]).heads) == 4
    assert len(attnviz.reading(model, tokenizer, TEXTS[0]).head_table()["entropy"]) == 4
    assert not runs


def tokenizer_of(model: Any, decoder: Any) -> Any:
    """A tokenizer that cuts punctuation off, and decodes as told."""
    inner = Tokenizer(model)
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer() if decoder is None else pre_tokenizers.ByteLevel()
    inner.decoder = decoders.WordPiece() if decoder is None else decoder
    build: Any = PreTrainedTokenizerFast
    return build(tokenizer_object=inner, pad_token="[PAD]", unk_token="[UNK]")


QUOTED = "It isn't well-known, e.g. here. He didn't say."


def test_words_and_sentences_of_decoded_texts_are_left_out_where_these_are_others() -> None:
    letters = [*pre_tokenizers.ByteLevel.alphabet()]
    pieces = ["[PAD]", "[UNK]", *letters, *(f"##{letter}" for letter in letters)]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    pieced = tokenizer_of(models.WordPiece(vocabulary, unk_token="[UNK]"), None)
    by_bytes = tokenizer_of(models.BPE(vocabulary, [], unk_token="[UNK]"), decoders.ByteLevel())
    model = BertModel(BertConfig(vocab_size=len(vocabulary), hidden_size=8, num_hidden_layers=1, num_attention_heads=2))
    for tokenizer, is_known in ((pieced, False), (by_bytes, True)):
        of_texts = attnviz.survey(model, tokenizer, [QUOTED])
        encoded = dict(tokenizer([QUOTED], return_tensors="pt"))
        of_batches = attnviz.survey(model, tokenizer, batches=[encoded])
        assert set(of_batches.omitted_metrics) == (set() if is_known else {"block", "same-word", "sentence-start"})
        for metric in of_batches.metrics:
            np.testing.assert_allclose(
                values(of_texts, metric.name), values(of_batches, metric.name), atol=1e-5, err_msg=metric.name
            )


class OwnModel(nn.Module):
    """One head of ones own, that looks at the token before."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.embedding = nn.Embedding(50, 8)

    def forward(self, ids: Tensor) -> Tensor:
        hidden = self.embedding(ids)
        mask = torch.full((ids.shape[1],) * 2, float("-inf"))
        mask = mask.where(torch.eye(ids.shape[1]).roll(-1, 1) == 0, 0.0)
        mixed: Tensor = self.attention(hidden, hidden, hidden, attn_mask=mask.T, need_weights=False)[0]
        return mixed


def test_a_module_of_ones_own_is_surveyed_over_what_a_loader_gives() -> None:
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.arange(1, 31).reshape(5, 6)), batch_size=2
    )
    found = attnviz.survey(OwnModel().eval(), batches=loader, heads=[1])
    assert (found.texts, found.tokens) == (5, 30)
    assert [head.name for head in found.heads] == ["0.1"]
    assert found.examples.texts[4].tokens.labels[0] == "#25"
    assert found.examples.texts[4].corpus_position == "batch 3:1"


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({}, "needs a tokenizer and texts, a processor and images, or batches"),
        ({"texts": ["one"]}, "needs a tokenizer and texts, a processor and images, or batches"),
        ({"batches": []}, "no batch to survey"),
        ({"batches": [torch.zeros(2, 3, 4)]}, "a batch holds no ids"),
        ({"batches": [{"input_ids": torch.ones(1, 3, dtype=torch.int64), "attention_mask": torch.tensor([[0, 1, 1]])}]},
         "padding that is not at the ends"),
    ],
)  # fmt: skip
def test_what_is_no_text_is_refused_in_one_line(given: dict[str, Any], match: str) -> None:
    with pytest.raises(AttnvizError, match=match):
        attnviz.survey(RandomTexts(MODELS["bert"]).module, **given)


def test_no_text_at_all_is_refused(tokenizer: Any) -> None:
    with pytest.raises(AttnvizError, match=r"no text to survey in texts \(2 no text\)"):
        attnviz.survey(MODELS["bert"], tokenizer, [None, 5])  # type: ignore[list-item]
