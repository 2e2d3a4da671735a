"""`attnviz.survey`: what the heads of a model, or of a module of your own, do over many texts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from attnviz.base.arrays import IntArray
from attnviz.base.errors import AttnvizError
from attnviz.corpus.measuring.survey_batch import survey_of_batch
from attnviz.corpus.sums.survey import Survey, merged
from attnviz.corpus.survey_corpus import SurveyRun
from attnviz.corpus.texts.batches import Batch, SurveyOptions, TextWindow
from attnviz.corpus.texts.own_classes import own_masks
from attnviz.corpus.texts.read import CorpusText, GivenTexts
from attnviz.corpus.texts.text_models import refuse_long_window
from attnviz.models.huggingface.reader import HuggingFaceReader
from attnviz.models.huggingface.tokens import tokenize_text, tokens_of_ids
from attnviz.models.reading.settings import ModelSettings
from attnviz.text.selection import Selection
from attnviz.text.tokens import Tokens, tokens_of_pieces

IDS, MASK = "input_ids", "attention_mask"
PROBE = "don't, e.g. well-known it's 3.5."
OF_WORDING = ("block", "same-word", "sentence-start")  # metrics that read words and sentences


def survey(
    model: nn.Module,
    tokenizer: Any = None,
    texts: Iterable[str] | None = None,
    *,
    batches: Iterable[Any] | None = None,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    tokens: int | None = None,
    window: int | None = None,
    classes: Mapping[str, str] | None = None,
) -> Survey:
    """What every head of a model does over many texts, as in evaluation: nothing is dropped out.

    Args:
        model: a transformer of Hugging Face, with ``tokenizer`` and ``texts``; or any module, with ``batches``.
        tokenizer: of the model; beside ``batches`` it names the tokens. Where it does not give a text back from the
            ids, as WordPiece does not ("don ' t"), the metrics that read words and sentences are left out.
        texts: read one by one, so that they may be more than memory holds.
        batches: what the module is called with, one batch after another: a tensor, a tuple, or a dictionary of named
            arguments. The first tensor of whole numbers, or ``input_ids``, holds the ids, ``(texts, tokens)``;
            ``attention_mask`` says which are padding, at the ends.
        layers: which layers; ``None`` for all.
        heads: which heads of each; ``None`` for all.
        tokens: after how many tokens it ends.
        window: of how many tokens a text is at most; longer ones are cut.
        classes: regular expressions whose matches are classes of tokens of their own, by their names.

    Raises:
        AttnvizError: if there is no text, or the model does not attend as a survey needs.

    Example:
        >>> import attnviz, torch
        >>> from attnviz.models.trained import load_model
        >>> batches = [torch.randint(0, 256, (4, 16)) for _ in range(2)]
        >>> summary = attnviz.survey(load_model(), batches=batches)
        >>> summary.texts, summary.tokens, len(summary.heads)
        (8, 128, 4)
    """
    selection = Selection(layers=_tuple(layers), heads=_tuple(heads))
    options = SurveyOptions(
        selection=selection, own=dict(classes or {}), tokens=tokens, window=window, corpus=("texts",)
    )
    if (texts is None) == (batches is None) or (texts is not None and tokenizer is None):
        raise AttnvizError("a survey takes a tokenizer and texts, or batches; survey(model, tokenizer, texts) works")
    with _evaluating(model):
        if batches is not None:
            return _of_batches(model, tokenizer, batches, options)
        assert texts is not None
        settings = ModelSettings(model=type(model).__name__)
        loaded: Any = model, tokenizer
        reader = HuggingFaceReader(settings, use="texts", loaded=loaded)
        refuse_long_window(reader, window)
        found = SurveyRun(reader, options).run(GivenTexts(texts))
    assert found is not None
    return found


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Has no module drop anything out, and leaves each as it was."""
    trained = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in trained:
            module.training = True


def _tuple(numbers: Sequence[int] | None) -> tuple[int, ...] | None:
    return None if numbers is None else tuple(numbers)


def _of_batches(module: nn.Module, tokenizer: Any, batches: Iterable[Any], options: SurveyOptions) -> Survey:
    """The survey of a module over what its batches hold."""
    total: Survey | None = None
    for number, given in enumerate(batches, 1):
        model, first = GivenBatch(module, given, tokenizer), 0 if total is None else total.texts
        windows = [
            TextWindow(first + row, CorpusText(f"batch {number}", row + 1, tokens.text), 0, tokens)
            for row, tokens in enumerate(model.texts)
        ]
        batch = Batch(windows, own_masks(model.texts, options.own))
        total = merged(total, survey_of_batch(model, batch, options))
        if total is not None and options.tokens is not None and total.tokens >= options.tokens:
            break
    if total is None:
        raise AttnvizError("no batch to survey; batches that hold texts work")
    return total if tokenizer is None or _gives_back(tokenizer) else _without_wording(total)


def _gives_back(tokenizer: Any) -> bool:
    """True if the ids of a text decode to the text, with its spaces where they were; of unknown words these count."""
    ids = tokenizer(PROBE, add_special_tokens=False)["input_ids"]
    decoded = _decoded(tokenizer, ids, skip=False).strip()
    unknown = getattr(tokenizer, "unk_token_id", None) in ids
    return decoded == PROBE or (unknown and decoded.count(" ") == PROBE.count(" "))


def _without_wording(survey: Survey) -> Survey:
    """Returns the survey without the metrics that read words and sentences."""
    return survey.of_metrics([metric for metric in survey.metrics if metric.name not in OF_WORDING])


@final
class GivenBatch:
    """A module and the one batch that it is called with.

    Args:
        module: what is called.
        given: a tensor, a tuple or a dictionary.
        tokenizer: names the tokens; ``None`` for their numbers.

    Raises:
        AttnvizError: where the batch holds no ids, or padding that is not at the ends.
    """

    def __init__(self, module: nn.Module, given: Any, tokenizer: Any) -> None:
        self.module, self.name, self.given = module, type(module).__name__, given
        self.device = next(module.parameters()).device
        named = given if isinstance(given, Mapping) else {}
        ids = named.get(IDS, next(filter(_holds_ids, named.values() if named else _listed(given)), None))
        if not isinstance(ids, Tensor) or not _holds_ids(ids):
            raise AttnvizError("a batch holds no ids; whole numbers of (texts, tokens) work")
        real = np.ones(tuple(ids.shape), dtype=bool)
        if isinstance(mask := named.get(MASK), Tensor) and mask.shape == ids.shape:
            real = mask.cpu().numpy() != 0
        lengths = real.sum(axis=1)
        if (real != (np.arange(real.shape[1]) < lengths[:, None])).any() or not lengths.all():
            raise AttnvizError("a batch has padding that is not at the ends of its texts; padding_side='right' works")
        self.texts = [
            _tokens(row[:length], tokenizer) for row, length in zip(ids.cpu().numpy(), lengths.tolist(), strict=True)
        ]

    def inputs_of_batch(self, texts: Sequence[Tokens]) -> Any:
        """What was given, where the module is."""
        if isinstance(self.given, Mapping):
            return {name: _moved(value, self.device) for name, value in self.given.items()}
        return tuple(_moved(value, self.device) for value in _listed(self.given))


def _listed(given: Any) -> Sequence[Any]:
    return given if isinstance(given, tuple | list) else (given,)


def _holds_ids(value: Any) -> bool:
    whole = isinstance(value, Tensor) and not value.is_floating_point() and not value.is_complex()
    return whole and value.ndim == 2 and value.dtype != torch.bool and value.numel() > 0


def _moved(value: Any, device: torch.device) -> Any:
    return value.to(device) if isinstance(value, Tensor) else value


def _decoded(tokenizer: Any, ids: IntArray, skip: bool = True) -> str:
    """Returns the text of ids with all its spaces, without special tokens where these are skipped."""
    return str(tokenizer.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False))


def _tokens(ids: IntArray, tokenizer: Any) -> Tokens:
    """Tokens of ids; without a tokenizer each is named by its number."""
    if tokenizer is not None:
        text = _decoded(tokenizer, ids)
        for given in (text.removeprefix(" "), text) if text.strip() and _gives_back(tokenizer) else ():
            tokens = tokenize_text(tokenizer, given)
            if tokens.ids.tolist() == ids.tolist():  # whose places are exact, those of spaces too
                return tokens
        return tokens_of_ids(tokenizer, text, ids.tolist())
    names = [f"#{number}" for number in ids]
    stops = np.cumsum([len(name) + 1 for name in names]).tolist()
    places = [(stop - len(name) - 1, stop - 1) for name, stop in zip(names, stops, strict=True)]
    return tokens_of_pieces(" ".join(names), ids.tolist(), names, places, np.zeros(len(ids), dtype=bool))
