"""Trains tiny tokenizers of the kinds that real models have, once for all tests, and draws texts for them."""

import json
from functools import cache
from typing import Any

from hypothesis import strategies
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

PHRASES = (
    "The cat sat on the mat.", "It's 12.5 °C, isn't it?", "“Who?” she asked.", "Straße, naïve café!",
    "Кот спал. Он видел сон?", "猫は座った。犬が走った。", "「はい。」と言った。", "我们走吧！好吗？", "고양이",
    "बिल्ली बैठी। वह सो गई।", "แมวนั่งอยู่", "القط نام؟ نعم.", "החתול ישן.", "Η γάτα κάθισε.",
    "for i in range(3):\n    print(i)\n\treturn", "| a | b |\n|---|---|\n| 1 | 2 |", "🫨🫨 ok 👩\u200d🚀",
    "x", ".", "...", "12 cats",
)  # fmt: skip
BLANKS = (" ", "  ", "\n", "\n\n", "\r\n", "\r\n\r\n", "\r", "\t", "\n  ", " \n \n", "\u3000", "\u2028", "")
LINES_APART = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
CORPUS = [" ".join(PHRASES), "\n\n".join(PHRASES), "\r\n".join(PHRASES), *PHRASES] * 3
TEXTS = strategies.lists(
    strategies.tuples(strategies.sampled_from(BLANKS), strategies.sampled_from(PHRASES)), min_size=1, max_size=6
).map(lambda parts: "".join(map("".join, parts)))


def _byte_level(trims: bool, prefix: bool = False, split: str | None = None) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=split is None)
    splits = [pre_tokenizers.Split(Regex(split), "isolated")] if split else []
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splits, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    _train(tokenizer, trainers.BpeTrainer(vocab_size=600, initial_alphabet=byte_level.alphabet(), show_progress=False))
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=trims, add_prefix_space=prefix)
    return tokenizer


def _pieces(pre_tokenizer: Any, normalizer: Any = None) -> Tokenizer:
    """Returns a tokenizer whose signs for spaces are ``▁``, and which falls back to bytes."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    signs = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    alphabet = sorted(set("".join(CORPUS)) - set("🫨👩🚀"))  # these are left to the bytes
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=signs, limit_alphabet=len(alphabet) - 20, show_progress=False
    )
    _train(tokenizer, trainer)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    trained = json.loads(tokenizer.to_str())
    return Tokenizer.from_str(
        json.dumps({**trained, "added_tokens": trained["added_tokens"][:1]})
    )  # bytes are no marks


def _word_piece(lower_cases: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lower_cases)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    signs = ["[UNK]", "[CLS]", "[SEP]"]
    _train(tokenizer, trainers.WordPieceTrainer(vocab_size=400, special_tokens=signs, show_progress=False))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    return tokenizer


def _unigram(splits_words: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    splitters = [pre_tokenizers.WhitespaceSplit()] if splits_words else []
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splitters, pre_tokenizers.Metaspace()])
    _train(
        tokenizer,
        trainers.UnigramTrainer(vocab_size=400, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False),
    )
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def _train(tokenizer: Tokenizer, trainer: Any) -> None:
    tokenizer.train_from_iterator(CORPUS, trainer)


MADE = {
    "bytes": lambda: _byte_level(trims=False),
    "bytes, trimmed": lambda: _byte_level(trims=True),
    "bytes, trimmed, after a space": lambda: _byte_level(trims=True, prefix=True),
    "bytes, lines apart": lambda: _byte_level(trims=False, split=LINES_APART),
    "pieces, always after a space": lambda: _pieces(pre_tokenizers.Metaspace(prepend_scheme="always")),
    "pieces, first after a space": lambda: _pieces(pre_tokenizers.Metaspace(prepend_scheme="first")),
    "pieces, as they are": lambda: _pieces(pre_tokenizers.Metaspace(prepend_scheme="never")),
    "pieces, normalised": lambda: _pieces(
        pre_tokenizers.Split(" ", "merged_with_previous"), normalizers.Replace(" ", "▁")
    ),
    "pieces, prepended": lambda: _pieces(
        pre_tokenizers.Split("\n", "isolated"),
        normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
    ),
    "words": lambda: _word_piece(lower_cases=False),
    "words in lower case": lambda: _word_piece(lower_cases=True),
    "unigram": lambda: _unigram(splits_words=False),
    "unigram of words": lambda: _unigram(splits_words=True),
}  # fmt: skip


@cache
def made_tokenizer(name: str) -> Tokenizer:
    """Returns the trained tokenizer of a name in `MADE`."""
    return MADE[name]()
