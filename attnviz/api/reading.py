"""Records with a model that the caller has loaded: a text, pictures, a sound, or a text written elsewhere."""

import inspect
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.api.recording import DrawableRecording, drawable
from attnviz.base.errors import AttnvizError
from attnviz.capture.model_calls import evaluation_mode
from attnviz.maps.recording import Recording
from attnviz.media.image import image_source, refuse_single_image
from attnviz.models.huggingface.replay import LogprobCheck, answer_tokens, refuse_unknown_ids
from attnviz.models.reading.captured import record_module
from attnviz.models.reading.example import Example, Prepared
from attnviz.models.reading.settings import ModelSettings
from attnviz.models.sources import LiveModel
from attnviz.text.samples import picture_or_sample
from attnviz.text.selection import Selection
from attnviz.text.server_answer import ServerAnswer

if TYPE_CHECKING:
    from torch import nn

    from attnviz.effects.unit_effects import UnitEffects
    from attnviz.effects.why import Why
    from attnviz.models.reading.computation import Computation


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Reading(DrawableRecording):
    """The recording of an example that keeps its model in memory, so that ``ablate`` and ``explanation`` can run it.

    Attributes:
        live: the model and its processor.
        example: the text, the image or both.
        model_settings: the attention to record, and the number of tokens to generate.
    """

    live: LiveModel
    example: Example
    model_settings: ModelSettings

    def compute(self, layer: int) -> "Computation":
        """Returns the queries, keys, scores, weights and output of one layer, as ``attnviz explain`` computes them.

        Raises:
            AttnvizError: if the layer does not exist or cannot be explained.
        """
        with self.live.unchanged():
            return self.live.reader(self.model_settings, self.example.use).compute(self.example, layer)

    def why(
        self,
        token: int | str | None = None,
        versus: int | str | None = None,
        position: int | None = None,
        *,
        checks: bool = True,
        controls: int | None = None,
        replace_by: Any = "zero",
    ) -> "Why":
        """Explains why the model predicts a token after this example, as ``attnviz.why`` and ``attnviz why`` do.

        Args:
            token: the token to explain, by its label or id; ``None`` for the most probable one.
            versus: another token, whose logit is subtracted.
            position: the index of the token after which the prediction stands; ``None`` as in ``attnviz.why``.
            checks: false to leave the checks out.
            controls: how many random sets the checks are compared with, as in ``attnviz.why``.
            replace_by: what a removed head writes, as in ``attnviz.why``; another text may also be given as it is.

        Raises:
            AttnvizError: what ``attnviz.why`` refuses.
        """
        with self.live.unchanged():
            reader = self.live.reader(self.model_settings, self.example.predicting_use)
            return reader.why(
                self.example, token, versus, position, checks=checks, controls=controls, replace_by=replace_by
            )

    def why_units(self, by: str, *, layers: str | None = None, heads: str | None = None) -> "UnitEffects":
        """Returns what each unit of the text, such as a sentence, rests on, as ``attnviz why --by`` shows it.

        The model runs once more than there are units, and twice more with passages.

        Args:
            by: the units: ``turns``, ``sentences``, ``passages`` or any other name of ``--by``.
            layers: layers as ``0-3,7``.
            heads: heads as ``4.11,9.6``; without layers and heads, receiver heads.

        Raises:
            AttnvizError: if the text has fewer than two such units, or the model predicts no tokens or takes no mask.

        Source: Bogdan et al. 2025, "Thought Anchors" (arXiv 2506.19143): receiver heads, and hidden sentences.
        """
        from attnviz.api.unit_effects import unit_effects

        selection = Selection.parse(layers=layers, heads=heads)
        with self.live.unchanged():
            reader = self.live.reader(self.model_settings, self.example.predicting_use)
            return unit_effects(reader, self.example, selection, by)[1]


def readings_of(model: "nn.Module", inputs: Sequence[Any]) -> list[Reading]:
    """Returns the inputs of one call if they are readings, all of one kind and of this model; [] if none is a reading.

    Raises:
        AttnvizError: if only some are readings, if one is of another model, or if no one reader can read them all.
    """
    readings = [each for each in inputs if isinstance(each, Reading)]
    if readings and len(readings) < len(inputs):
        raise AttnvizError(
            f"{len(inputs) - len(readings)} of {len(inputs)} inputs are no readings; give attnviz.reading of each"
        )
    if any(each.live.model is not model for each in readings):
        raise AttnvizError("a reading is of another model; give the model that attnviz.reading ran")
    kinds = [(each.model_settings, each.example.use) for each in readings]
    if any(kind != kinds[0] for kind in kinds):
        raise AttnvizError("the readings differ in medium, attention or generate; give each kind by itself")
    return readings


def refuse_labels(tokens: Iterable[Any]) -> None:
    """Raises AttnvizError if a token of a model without a tokenizer is given by its label."""
    if any(isinstance(token, str) for token in tokens):
        raise AttnvizError("a label of a token needs a tokenizer; give its id, or an attnviz.reading")


def for_each(value: Any, inputs: Sequence[Any], name: str) -> list[Any]:
    """Returns a value for each input: a list as it is, or the one value that all inputs share."""
    if not isinstance(value, list):
        return [value] * len(inputs)
    if len(value) != len(inputs):
        raise AttnvizError(f"{name} has {len(value)} items for {len(inputs)} texts; give one for each, or one for all")
    return value


def few_remarks(said: Counter[str], prompts: int) -> list[str]:
    """Returns the remarks on all prompts; of more than two on some of them the first, and how many there are."""
    of_all = [line for line, count in said.items() if count >= prompts]
    of_some = [line for line in said if line not in of_all]
    if len(of_some) > 2:
        of_some[1:] = [f"{len(of_some) - 1} more such remarks are on other prompts."]
    return [*of_all, *of_some]


def reading(
    model: "nn.Module",
    processor: Any,
    text: str | None = None,
    images: Sequence[Any] = (),
    sounds: Sequence[Any] = (),
    *,
    attention: str | None = None,
    layers: Iterable[int] | None = None,
    heads: Iterable[int] | None = None,
    dense: bool | None = None,
    values: bool = False,
    generate: int = 0,
    name: str | None = None,
) -> Reading:
    """Returns the recording of a text, of a picture, of both, or of a sound, with the places of their parts.

    It is the recording that ``attnviz show TEXT FILE --model FOLDER -o run.safetensors`` saves of the same
    model, so that heads are drawn over the picture. A patch is labelled by row and column, ``r3c7``, a frame by its
    second. Their places are measured, in any module: no grid is assumed, and what cannot be known is numbered, with a
    remark that says why: give such places by hand to `attnviz.record`. A chat template of the processor places the text
    and the pictures. The model is unchanged afterwards, and stays in memory as long as the recording:
    ``attnviz.ablate(model, recording)`` and ``attnviz.explanation(recording, "1.3")`` run it.

    Args:
        model: a model of transformers, which reads texts, pictures, both or sounds; or any module.
        processor: its processor; a tokenizer is enough for a text, an image processor for a picture. For any module a
            function that turns a PIL image, or the samples of a sound, into its input: a tensor or an array, a tuple of
            arguments, or a mapping, nested or not: of arguments by name, or for a ``forward(batch)`` the batch itself;
            each with or without an axis of texts. With several images it gets a list. Samples are an array at the
            function's ``sampling_rate`` or ``sample_rate``, else at the file's.
        text: the text; ``None`` for a picture or sound alone.
        images: paths of PNG, JPEG or WebP files, PIL images, or numpy arrays of bytes (uint8) with red, green and blue,
            ``(rows, columns, 3)``; or ``sample:digits.png``, which comes with the package. Several need a text, or a
            function that reads them, such as frames of a video.
        sounds: the path of one WAV, FLAC, OGG or MP3 file, in a list.
        attention: the part of the model to record. A model that reads both has ``text`` and ``picture``, and ``cross``
            if it looks at pictures by cross-attention; ``None`` is ``cross`` if it has that, else ``text``. An
            encoder-decoder has ``encoder``, and with ``generate`` also ``decoder`` and ``cross``; ``None`` is
            ``encoder``, and with ``generate`` ``cross``. A detector, or any module whose queries look at a picture
            without a place in it, has ``cross``, ``encoder`` (patches) and ``decoder`` (what has no place). Other
            models have one part.
        layers: numbers of the layers, from 0; ``None`` for all.
        heads: numbers of the heads, from 0; ``None`` for all.
        dense: true for whole maps, false for factors; ``None`` for factors of long maps only.
        values: if true, value norms are kept, from which contributions are computed.
        generate: the number of tokens that the model generates after the text; they are recorded with it. 0 for none.
        name: the model's name in pictures and on slides; ``None`` as in `attnviz.record`.

    Returns:
        A recording whose ``weights`` are ``(heads, queries, keys)``. The places of patches, ``(tokens, 4)``, are left,
        top, right and bottom in pixels of their picture.

    Raises:
        AttnvizError: if there is nothing to read; if several images, or ``generate``, are given without a text; if the
            model cannot read the input or generate, or has no such attention, layer or head; or if an image or sound
            cannot be read, or the places of its parts in a model of transformers cannot be measured.

    Example:
        >>> import attnviz, numpy, transformers
        >>> sizes = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
        >>> model = transformers.ViTModel(transformers.ViTConfig(**sizes, image_size=32, patch_size=16))
        >>> processor = transformers.ViTImageProcessor(size={"height": 32, "width": 32})
        >>> photo = numpy.zeros((64, 64, 3), dtype=numpy.uint8)
        >>> recording = attnviz.reading(model, processor, images=[photo])
        >>> recording.maps[0].key_tokens.labels, recording.maps[0].key_tokens.places[4].tolist()
        (('[CLS]', 'r0c0', 'r0c1', 'r1c0', 'r1c1'), [32, 32, 64, 64])

        Any module, with a function that makes its input:

        >>> import torch
        >>> stem = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 16, 16), torch.nn.Flatten(2))
        >>> class Net(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.stem, self.attention = stem, torch.nn.MultiheadAttention(8, 2, batch_first=True)
        ...     def forward(self, pixels):
        ...         tokens = self.stem(pixels).transpose(1, 2)
        ...         return self.attention(tokens, tokens, tokens)[0]
        >>> make = lambda image: torch.tensor(numpy.array(image.resize((48, 32))) / 255.0).float().permute(2, 0, 1)
        >>> recording = attnviz.reading(Net(), make, images=[photo])
        >>> recording.maps[0].key_tokens.labels
        ('r0c0', 'r0c1', 'r0c2', 'r1c0', 'r1c1', 'r1c2')
    """
    from attnviz.capture.capture_block import refuse_opaque

    refuse_opaque(model)
    live = LiveModel(model, processor)
    refuse_single_image(images)
    given = enumerate(map(picture_or_sample, images), 1)
    sources = tuple(image_source(image, number, len(images)) for number, image in given)
    if sounds:
        if isinstance(sounds, (str, Path)) or len(sounds) != 1 or sources:
            raise AttnvizError('a model hears one sound, without images; give sounds=["speech.wav"]')
        example = Example(text or "", sound=Path(sounds[0]))
    elif text:
        example = Example(text, images=sources)
    elif len(sources) == 1:
        example = Example(image=sources[0])
    elif sources and live.is_own:
        example = Example(images=sources)
    elif sources:
        raise AttnvizError(f"there are {len(sources)} images without a text; give text, or one image")
    else:
        raise AttnvizError("there is nothing to read; give text, images or sounds")
    if generate and not text:
        raise AttnvizError("generate needs a text, after which the model generates; give text")
    settings = ModelSettings(model=live.name, attention=attention, dense=dense, generate=generate)
    selection = Selection(
        layers=None if layers is None else tuple(layers), heads=None if heads is None else tuple(heads)
    )
    with live.unchanged():
        recording = live.reader(settings, example.use).record(example, selection, values)
    recorded_fields = {field.name: getattr(recording, field.name) for field in fields(Recording)}
    recorded_fields["model"] = name or recording.model
    return Reading(**recorded_fields, live=live, example=example, model_settings=settings)


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
        prompt_length: the number of ids in the prompt; the others become generated tokens, for ``attnviz.steps``.
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
    answer = ServerAnswer(tuple(token_ids[:prompt_count]), tuple(token_ids[prompt_count:]), answer_logprobs)
    from torch import nn

    # The first embedding has a row per token id.
    table = next((part for part in model.modules() if isinstance(part, nn.Embedding)), None)
    refuse_unknown_ids(answer, None if table is None else table.num_embeddings, type(model).__name__)

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
    prepared_input = Prepared(
        inputs,
        answer_tokens(tokenizer, answer),
        check=None if answer.logprobs is None else LogprobCheck(answer, type(model).__name__),
    )
    selection = Selection(
        layers=None if layers is None else tuple(layers), heads=None if heads is None else tuple(heads)
    )
    with evaluation_mode(model):
        recording = record_module(model, prepared_input, selection, values=values, dense=dense)
    return drawable(recording)
