"""A tokenizer of four words for tests of loaded models."""

from typing import Any

import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

t: Any = transformers  # whose constructors have no types


def word_tokenizer() -> Any:
    words = {"<unk>": 0, "life": 1, "is": 2, "short": 3}
    encoder = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    encoder.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return t.PreTrainedTokenizerFast(tokenizer_object=encoder, unk_token="<unk>")
