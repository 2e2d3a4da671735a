"""A name of the vocabulary is taken as typed; a space before it is shown and said, and both can be asked for."""

from typing import Any

import pytest

from attnviz.base.errors import AttnvizError
from attnviz.models.huggingface.tokens import single_token


@pytest.fixture(params=["never", "always", "byte-level"])
def tokenizer(request: pytest.FixtureRequest) -> Any:
    """One of Gemma's kind, of Llama's, which puts a space before each text, and of GPT-2's."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    is_byte_level = request.param == "byte-level"
    names = ["<unk>", "S.", "S", ".", "Scat", "dog"]
    vocabulary = {name.replace("S", "Ġ" if is_byte_level else "▁"): index for index, name in enumerate(names)}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    metaspace = {"prepend_scheme": request.param, "split": False}
    if is_byte_level:
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        made.decoder = decoders.ByteLevel()
    else:
        made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(**metaspace), decoders.Metaspace(**metaspace)
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>")  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    ("typed", "token", "label", "remark"),
    [
        (".", 3, ".", "“.” is the token as typed; “␣.” is another, asked for as ' .'."),
        (" .", 1, "␣.", "“␣.” is the token as typed; “.” is another, asked for as '.'."),
        ("␣.", 1, "␣.", "“␣.” is the token as typed; “.” is another, asked for as '.'."),
        ("cat", 4, "␣cat", "'cat' is the token “␣cat” here."),
        (" cat", 4, "␣cat", ""),
        ("dog", 5, "dog", ""),
        (" dog", 5, "dog", "' dog' is the token “dog” here."),
    ],
)
def test_what_is_typed_is_taken_where_it_is_a_token(
    tokenizer: Any, typed: str, token: int, label: str, remark: str
) -> None:
    assert single_token(tokenizer, typed) == (token, label, remark)


def test_what_is_no_token_with_a_space_or_without_is_refused(tokenizer: Any) -> None:
    with pytest.raises(AttnvizError, match="'catdog' is not a single token"):
        single_token(tokenizer, "catdog")
