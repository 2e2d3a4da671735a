"""Replays a text that a model wrote elsewhere, such as on a server: one forward pass over its token ids."""

import inspect
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from attnviz.api.recording import DrawableRecording, drawable
from attnviz.base.errors import AttnvizError
from attnviz.capture.runs import evaluation_mode
from attnviz.models.huggingface.replay import LogprobCheck, answer_tokens, refuse_unknown_ids
from attnviz.models.reading.captured import record_module
from attnviz.models.reading.prepared import Prepared
from attnviz.text.selection import Selection
from attnviz.text.server_answer import ServerAnswer

if TYPE_CHECKING:
    from torch import nn


def replay(
    model: "nn.Module",
    ids: Any,
    tokenizer: Any = None,
    *,
    prompt_length: int | None = None,
    logprobs: Iterable[float] | None = None,
    layers: Iterable[int] | None = None,
    heads: Iterable[int] | None = None,
    dense: bool | None = None,
    values: bool = False,
) -> DrawableRecording:
    """Returns the recording of one forward pass over token ids, as a server read and wrote them.

    The maps are those of the steps in which the ids were generated. No text is tokenized again, so the ids are those
    that the server's model saw. ``attnviz show answer.json --model FOLDER`` does the same with a server's answer.

    Args:
        model: the model, which takes ids of shape ``(batch, tokens)`` as ``input_ids`` or as its first argument.
        ids: the ids of the prompt, then those of the answer: a list, an array or a tensor.
        tokenizer: the model's tokenizer of transformers; without one, tokens are labelled by their ids.
        prompt_length: the number of ids in the prompt; the others become generated tokens, for ``steps``.
        logprobs: the log-probability of each id of the answer, in nats, which are compared with the model's.
        layers: numbers of the layers, from 0; ``None`` for all.
        heads: numbers of the heads, from 0; ``None`` for all.
        dense: true for whole maps, false for factors; ``None`` for factors of long maps only.
        values: if true, value norms are kept, from which contributions are computed.

    Raises:
        AttnvizError: if there are no ids, ``prompt_length`` does not fit them, the model lacks one of them, or the
            log-probabilities differ by 0.5 or more on average: another model wrote the answer.

    Example:
        >>> import attnviz
        >>> from attnviz.models.trained import load_model
        >>> recording = attnviz.replay(load_model(), [72, 105, 33, 72, 105], prompt_length=3)
        >>> recording.maps[0].key_tokens.labels
        ('72', '105', '33', '72', '105')
    """
    answer = _server_answer(ids, prompt_length, logprobs)
    refuse_unknown_ids(answer, _embedding_rows(model), type(model).__name__)
    prepared_input = Prepared(
        _inputs_of(model, answer),
        answer_tokens(tokenizer, answer),
        check=None if answer.logprobs is None else LogprobCheck(answer, type(model).__name__),
    )
    selection = Selection(
        layers=None if layers is None else tuple(layers), heads=None if heads is None else tuple(heads)
    )
    with evaluation_mode(model):
        recording = record_module(model, prepared_input, selection, values=values, dense=dense)
    return drawable(recording)


def _server_answer(ids: Any, prompt_length: int | None, logprobs: Iterable[float] | None) -> ServerAnswer:
    """Returns the ids as prompt and answer, with the log-probabilities of the answer if they are given."""
    token_ids = ids.tolist() if hasattr(ids, "tolist") else list(ids)
    if len(token_ids) == 1 and isinstance(token_ids[0], list):
        token_ids = token_ids[0]
    answer_logprobs = None if logprobs is None else tuple(float(logprob) for logprob in logprobs)
    count = len(token_ids)
    prompt_count = prompt_length if prompt_length is not None else count - len(answer_logprobs or ())
    if prompt_length is None and answer_logprobs and prompt_count < 1:
        raise AttnvizError(
            f"{len(answer_logprobs)} log-probabilities of {count} ids leave no prompt; give those of the answer alone"
        )
    lacks_prompt = bool(answer_logprobs) and not prompt_count  # the first id of an answer needs one before it
    if not 0 <= prompt_count <= count or lacks_prompt:
        raise AttnvizError(f"a prompt of {prompt_count} of {count} ids is impossible; give prompt_length 1 to {count}")
    return ServerAnswer(tuple(token_ids[:prompt_count]), tuple(token_ids[prompt_count:]), answer_logprobs)


def _embedding_rows(model: "nn.Module") -> int | None:
    """Returns the number of rows of a model's first embedding, one per token id; ``None`` without an embedding."""
    from torch import nn

    table = next((part for part in model.modules() if isinstance(part, nn.Embedding)), None)
    return None if table is None else table.num_embeddings


def _inputs_of(model: "nn.Module", answer: ServerAnswer) -> dict[str, Any]:
    """Returns the keyword arguments of a forward pass over the ids of an answer, on the model's device."""
    import torch

    names = list(inspect.signature(model.forward).parameters)
    parameter = next(model.parameters(), torch.empty(0))
    # offloaded weights are on the device "meta", which holds no numbers; their hooks move the ids to the right device
    device = "cpu" if parameter.device.type == "meta" else parameter.device
    inputs: dict[str, Any] = {
        "input_ids" if "input_ids" in names else names[0]: torch.tensor([answer.all_ids], device=device)
    }
    if "use_cache" in names:
        inputs["use_cache"] = False
    if "logits_to_keep" in names and answer.logprobs is not None:
        inputs["logits_to_keep"] = LogprobCheck(answer, name="").kept_logits  # the name is only for refusals
    return inputs
