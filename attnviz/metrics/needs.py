"""Names the conditions under which a metric applies, and joins them into the end of a sentence."""

from collections.abc import Iterable
from enum import Enum

NOTHING_ELSE = "queries that see two keys or more"


class Need(Enum):
    """A condition of a metric, with its phrase; a sentence lists them in this order."""

    SELF_ATTENTION = "self-attention"
    TWO_TOKENS = "over two tokens or more"
    NOT_CAUSAL = "that is not causal"
    SEQUENCE = "tokens in a sequence"
    TOKEN_IDS = "token ids"
    REPEAT = "a repeat"
    SENTENCES = "two sentences"
    PAIR = "a pair of texts"
    PATCHES = "patches of an image"
    NO_PLACE = "tokens without a place"
    SPECIAL = "special tokens such as [CLS]"
    CAUSAL_SCORES = "a causal mask and all scores"
    SUCH_TOKEN = "texts with such a token"
    LONG_WORDS = "words of several tokens"
    EFFECT = "the effect of some head"


Needs = frozenset[Need]
QUALIFIERS = (Need.TWO_TOKENS, Need.NOT_CAUSAL)  # phrases that continue the one before them, without a comma
ONE_AXIS = frozenset({Need.SELF_ATTENTION, Need.PAIR, Need.CAUSAL_SCORES})  # these need queries and keys of one text


def sentence_of(needs: Iterable[Need], in_sequence: bool = True) -> str:
    """Returns the conditions as the end of a sentence, such as ``self-attention, token ids and a repeat``."""
    conditions = set(needs)
    if in_sequence:
        conditions.discard(Need.SEQUENCE)
    phrases: list[str] = []
    for need in Need:
        if need not in conditions:
            continue
        if need in QUALIFIERS and phrases:
            phrases[-1] += f" {need.value}"
        else:
            phrases.append(need.value)
    if not phrases:
        return NOTHING_ELSE
    *first_phrases, last_phrase = phrases
    return f"{', '.join(first_phrases)} and {last_phrase}" if first_phrases else last_phrase
