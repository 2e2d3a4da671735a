"""The text of a real decoder at the command line, with the model that ``python -m tools.decoder_data`` makes.

Units and answers are compared with the offsets of the tokenizer itself.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from attnviz.cli.commands import main
from attnviz.maps.grouped import Units
from attnviz.maps.saved import load
from attnviz.models.huggingface.chat import tokenize_example, with_answer
from attnviz.models.huggingface.tokens import tokenize_text, with_generated
from attnviz.models.reading.example import Example
from attnviz.models.reading.settings import ModelSettings
from attnviz.text.conversation import Conversation
from tests.streams import Streams

MODEL = Path(os.environ.get("ATTNVIZ_DECODER", ""))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (MODEL / "config.json").is_file(),
        reason="set ATTNVIZ_DECODER to the folder that python -m tools.decoder_data FOLDER makes",
    ),
]
SENTENCES = (
    "The cat sat on the mat.", "Every evening, the dog ran.", "猫は座った。", "犬が走った。", "12 cats: “It was dark.”",
)  # fmt: skip
TEXT = "{} {}\n\n  {}{}\r\n{} 🫨🫨 Yes".format(*SENTENCES)
TEMPLATE = """
{{- bos_token }}{% for m in messages %}{{- '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' }}
{{- m.content | trim + '<end_of_turn>\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"""


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(MODEL)


def test_words_and_sentences_are_those_of_the_text(tokenizer: Any) -> None:
    tokens = tokenize_text(tokenizer, TEXT)
    assert tokens.offsets.tolist() == [list(span) for span in tokenizer(TEXT).encodings[0].offsets]
    words = Units.of(tokens, "words", special=False).as_tokens()
    assert [TEXT[start:stop].strip() for start, stop in words.offsets.tolist()] == TEXT.split()
    assert Units.of(tokens, "sentences", special=False).labels[: len(SENTENCES)] == SENTENCES
    lines = Units.of(tokens, "lines", special=False).as_tokens().offsets.tolist()
    assert [TEXT[start:stop].strip() for start, stop in lines] == [line.strip() for line in TEXT.splitlines() if line]
    for by in ("words", "sentences", "lines", "paragraphs"):
        assert min(Units.of(tokens, by).numbers.tolist()) == 0  # every token is in a unit


def test_an_answer_after_an_emoji_is_whole_wherever_it_is_cut(tokenizer: Any) -> None:
    prompt = tokenize_text(tokenizer, "Emoji 🫨")
    broken = tokenizer.convert_tokens_to_ids("<0x9F>")
    ids = [broken, *tokenizer("🫨🫨 cats 👩\u200d🚀.", add_special_tokens=False)["input_ids"]]
    assert with_generated(tokenizer, prompt, ids).text == "Emoji 🫨\ufffd🫨🫨 cats 👩\u200d🚀."
    for count in range(len(ids)):
        text = with_generated(tokenizer, prompt, ids[:count]).text
        assert "Emoji 🫨\ufffd🫨🫨 cats 👩\u200d🚀.".startswith(text.rstrip("\ufffd"))


def test_the_marks_of_a_chat_are_in_no_word_or_sentence(tokenizer: Any) -> None:
    tokenizer.chat_template = TEMPLATE
    chat = [("user", "Is it so? Yes."), ("assistant", "No.\n\nIt is."), ("user", "Who was Curie?")]
    conversation = Conversation(tuple({"role": role, "content": content} for role, content in chat))
    example = Example.of_messages(conversation, ModelSettings())
    prompt, _ = tokenize_example(tokenizer, example)
    answer_ids = tokenizer(" A cat. It", add_special_tokens=False)["input_ids"]
    tokens = with_answer(with_generated(tokenizer, prompt, answer_ids), len(prompt), example)
    labels = Units.of(tokens, "sentences").labels
    assert labels == ("marks", "Is it so?", "Yes.", "No.", "It is.", "Who was Curie?", "A cat.", "It")
    assert Units.of(tokens, "words", special=False).labels[-6:] == ("Who", "was", "Curie?", "A", "cat.", "It")
    special = [tokens.labels[index] for index in range(len(prompt)) if tokens.special[index]]
    assert special == ["<bos>", *["<start_of_turn>", "<end_of_turn>"] * 3, "<start_of_turn>"]


def test_commands_write_the_sentences_and_the_generated_answer(tokenizer: Any, tmp_path: Path, shell: Streams) -> None:
    text = "The cat sat on the mat. Every evening, the dog ran. The capital of France, a 🫨, is"
    arguments = [text, "--model", str(MODEL), "--generate", "6"]
    assert main(["show", *arguments, "--layers", "5", "-o", str(tmp_path / "run.safetensors")]) == 0
    tokens = load(tmp_path / "run.safetensors").maps[0].query_tokens
    assert tokens.text.startswith(text)
    assert "\ufffd" not in tokens.text
    assert len(tokens) >= len(tokenizer(text)["input_ids"]) + 5
    assert "Every evening, the dog ran." in json.dumps(
        shell.json("show", str(tmp_path / "run.safetensors"), "--by", "sentences", "--heads", "5.0"),
        ensure_ascii=False,
    )
