"""Lists the kinds of models: the name of each, its reader class, and the settings that it uses.

A model of transformers that the caller has loaded is read by the readers that open one in a folder.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, cast

from attnviz.base.errors import AttnvizError, option, or_list
from attnviz.base.machine import DTYPES, refuse_little_memory
from attnviz.base.own_file import call_own, is_own_file, own_function
from attnviz.base.progress import working
from attnviz.models.reading.example import Use
from attnviz.models.reading.reader import Reader
from attnviz.models.reading.settings import ModelSettings
from attnviz.text.head_name import PICTURE_TOWER, refuse_other_tower

if TYPE_CHECKING:
    from attnviz.models.huggingface.sound_reader import SpeechModel

UNSURVEYED, UNPROBED = "and a survey needs a trained one", "and the battery needs a trained one"  # see refuse_untrained
COMMON_SETTINGS = ("model", "device", "dtype")  # used by every source
SHAPE = ("num_heads", "embed_dim", "num_layers", "qk_dim", "value_dim", "causal", "dropout", "bias", "scale")


@dataclass(frozen=True)
class SourceRow:
    """A kind of model."""

    name: str  # its name for ``--model``; for Hugging Face models, their name in a sentence
    address: str  # ``module:class`` of its reader, imported on use
    settings: tuple[str, ...]  # names of the settings that it uses besides the common ones; any other is refused
    is_trained: bool = True
    has_example: bool = False  # True if it has a built-in example, for commands without a text
    reads_images: bool = False  # True if it is a model of this package that reads images too
    sample_text: str = ""  # what it reads if the user gives no text; "" for the first sample

    @property
    def title(self) -> str:
        """The name of the model in a sentence, such as ``a Hugging Face model`` or ``the trained model``."""
        is_built_in = self in BUILT_IN
        return f"the {self.name} model" if is_built_in else self.name

    def load(self) -> type[Reader]:
        """Imports and returns the reader class."""
        module, _, name = self.address.partition(":")
        return cast("type[Reader]", getattr(import_module(module), name))


BUILT_IN = (
    SourceRow(
        "seeded",
        "attnviz.models.seeded:SeededReader",
        (*SHAPE, "temperature", "init", "seed", "tokenizer", "context", "dense"),
        is_trained=False,
    ),
    SourceRow("trained", "attnviz.models.trained:TrainedReader", ("tokenizer",), has_example=True),
    SourceRow(
        "trained-picture",
        "attnviz.models.trained_picture:TrainedPictureReader",
        (),
        has_example=True,
        reads_images=True,
        sample_text="middle-right",
    ),
)
PRETRAINED = SourceRow(  # any other name: a folder, or a name on the hub
    "a Hugging Face model",
    "attnviz.models.huggingface.reader:HuggingFaceReader",
    ("context", "attention", "pair", "chat", "generate", "device_map", "dense", "truncate"),
)
IMAGES = SourceRow(  # any other name, if the command was given an image
    "a Hugging Face vision model",
    "attnviz.models.huggingface.image_reader:ImageReader",
    ("generate", "attention", "device_map", "dense"),
)
PICTURES = SourceRow(  # any other name, if the command was given a text and images
    "a Hugging Face vision-language model",
    "attnviz.models.huggingface.picture_text_reader:PictureTextReader",
    ("generate", "device_map", "dense", "attention"),
)
SOUNDS = SourceRow(  # any other name, if the command was given a sound
    "a Hugging Face speech model",
    "attnviz.models.huggingface.sound_reader:SoundReader",
    ("attention", "device_map", "dense"),
)
OWN_MODULES = SourceRow(  # a module of the caller, with a function that makes its input
    "a module", "attnviz.models.own_module:OwnModuleReader", ("attention", "dense")
)
OWN = SourceRow(  # a function of a Python file, which the command line named
    "a model of your own file",
    "",
    ("context", "attention", "pair", "chat", "generate", "dense", "truncate"),
)
MEDIA_ROWS = {"images": IMAGES, "labels": IMAGES, "pictures": PICTURES, "answers": PICTURES, "sounds": SOUNDS}  # by use
SOURCES = (*BUILT_IN, PRETRAINED)
_named_models: set[str] = set()  # the functions of Python files that the command line named as a model


def open_reader(settings: ModelSettings, use: Use = "maps", tower: str | None = None) -> Reader:
    """Returns the reader of the model that ``settings.model`` names: a built-in model, or a Hugging Face model."""
    row = row_of(settings.model, use)
    refuse_unused(settings, row)
    refuse_little_memory()
    if row is PICTURES and tower is not None:
        is_picture_tower = tower == PICTURE_TOWER
        if settings.attention is not None and (settings.attention == PICTURE_TOWER) != is_picture_tower:
            raise AttnvizError(
                f"{option('heads')} name the {tower} tower, which {option('attention', settings.attention)} is not; "
                "leave one of them out"
            )
        settings = replace(settings, attention=tower) if is_picture_tower else settings
    built_in = [row.name for row in BUILT_IN]
    if row in (IMAGES, PICTURES):
        from attnviz.models.huggingface.picture_decoder_reader import PictureDecoderReader, has_own_decoder

        if has_own_decoder(cast(Any, IMAGES.load()(settings, built_in, use))):
            return PictureDecoderReader(settings, built_in, use)
        if settings.generate and row is IMAGES:
            raise AttnvizError(f"{option('generate')} does not apply to images of {settings.model}; leave it out")
    reader = own_model(settings).reader(settings, use) if row is OWN else row.load()(settings, built_in, use)
    if tower is not None:
        other_input = option("image", "photo.jpg") if tower == PICTURE_TOWER else "a text"
        refuse_other_tower(tower, reader.tower, settings.model, f"add {other_input}")
    return reader


def refuse_untrained(model: str, reason: str = "so effects on its output show nothing") -> None:
    """Raises AttnvizError if the model is untrained, for a reason that follows this word."""
    if not row_of(model).is_trained:
        raise AttnvizError(
            f"the {model} model is untrained, {reason}; use {option('model', 'trained')} or a Hugging Face model"
        )


def row_of(model: str, use: Use = "maps") -> SourceRow:
    """Returns the row of a model for its use; a name that is not built in has a row of Hugging Face models."""
    if not model.strip():
        raise AttnvizError(
            f"{option('model')} is empty; choose {or_list([*(row.name for row in BUILT_IN), 'a folder'])}"
        )
    if is_own_file(model):
        return OWN
    text_row = next((row for row in BUILT_IN if row.name == model), PRETRAINED)
    reads_media = text_row.reads_images and use != "sounds"
    if use not in MEDIA_ROWS or reads_media:
        return text_row
    if text_row is not PRETRAINED:
        if use == "sounds":
            raise AttnvizError(f"{text_row.title} reads no sound; give {option('model')} the folder of a speech model")
        raise AttnvizError(
            f"{text_row.title} reads text; for an image use {option('model', 'trained-picture')} or the folder of a "
            "vision model"
        )
    return MEDIA_ROWS[use]


def used_settings(model: str) -> tuple[str, ...]:
    """Returns the names of the settings that a model uses to read texts."""
    return (*COMMON_SETTINGS, *row_of(model).settings)


def refuse_unused(settings: ModelSettings, row: SourceRow | None = None) -> None:
    """Raises AttnvizError if a setting differs from its default and the model does not use it."""
    changed_names = [name for name, value in settings.as_json().items() if value != getattr(ModelSettings, name)]
    refuse_unused_names(changed_names, settings.model, row)


def refuse_unused_names(names: Iterable[str], model: str, row: SourceRow | None = None) -> None:
    """Raises AttnvizError for the first setting that the model does not use; a row is that of a medium."""
    used_names = used_settings(model) if row is None else (*COMMON_SETTINGS, *row.settings)
    unused_name = next((name for name in names if name not in used_names), None)
    if unused_name is not None:
        if row in MEDIA_ROWS.values():
            media = "sounds" if row is SOUNDS else "images"
            raise AttnvizError(f"{option(unused_name)} does not apply to {media}; leave it out")
        models = or_list(row.title for row in SOURCES if unused_name in row.settings)
        taker = "the default model" if model == ModelSettings.model else option("model", model)
        raise AttnvizError(f"{option(unused_name)} does not apply to {taker}; use it with {models}")


def allow_own_model(address: str) -> None:
    """Lets `own_model` run a function of a Python file. Only what the user typed on the command line may call this."""
    _named_models.add(address)


def own_model(settings: ModelSettings) -> "LiveModel":
    """Returns the model that a function of the user's file builds, and its processor if it returns one."""
    address = settings.model
    if address not in _named_models:
        raise AttnvizError(
            f"{address!r} is a function of a Python file, which runs only where {option('model')} of a command line "
            "names it; give it there"
        )
    live = _built_model(address)
    default = ModelSettings()
    place = {"device": settings.device, "dtype": settings.dtype}
    changed_place = {name: value for name, value in place.items() if value != getattr(default, name)}
    if changed_place:
        import torch

        dtype = getattr(torch, settings.dtype) if "dtype" in changed_place else None
        live.model.to(device=changed_place.get("device"), dtype=dtype)
    return live


@cache
def _built_model(address: str) -> "LiveModel":
    """Runs a function of the user's file that builds a model, once."""
    build = own_function("model", address)
    from torch import nn

    for parameter in signature(build).parameters.values():
        is_rest = parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
        if parameter.default is Parameter.empty and not is_rest:
            raise AttnvizError(f"{address} takes {parameter.name!r}, and is called with nothing; give it a default")
    with working("building the model"):
        built: Any = call_own(build)
    model, processor = built if isinstance(built, tuple) and len(built) == 2 else (built, None)
    if not isinstance(model, nn.Module):
        raise AttnvizError(
            f"{address} returned a value of type {type(model).__name__}; return a torch module, or a module and its "
            "tokenizer or processor"
        )
    return LiveModel(model.eval(), processor)


@dataclass(frozen=True, eq=False)
class LiveModel:
    """A model that the caller has loaded, with what makes its input."""

    model: Any  # the model
    # its processor; a tokenizer is enough for texts, an image processor for images, a function for other modules
    processor: Any

    @property
    def name(self) -> str:
        """What the model is called, by its attribute ``name`` or its class."""
        from attnviz.capture.model_calls import name_of

        return name_of(self.model)

    @property
    def is_own(self) -> bool:
        """True if it is no model of transformers with its processor: a function makes its input."""
        of_transformers = ("save_pretrained", "image_processor", "tokenizer", "convert_ids_to_tokens")
        has_own_function = callable(self.processor) and not any(
            hasattr(self.processor, name) for name in of_transformers
        )
        return has_own_function or not hasattr(self.model, "main_input_name")

    def reader(self, settings: ModelSettings, use: Use) -> Reader:
        """Returns the reader of the model for a use, whose settings name the precision of the model's weights."""
        dtypes = (str(weights.dtype).removeprefix("torch.") for weights in getattr(self.model, "parameters", tuple)())
        dtype = next((name for name in dtypes if name in DTYPES), settings.dtype)
        settings = replace(settings, dtype=dtype)
        if self.is_own and use not in MEDIA_ROWS:
            from attnviz.models.own_text import OwnTextReader

            return OwnTextReader(settings, use, self.model, self.processor)
        if self.is_own:
            if not callable(self.processor):
                raise AttnvizError(
                    f"{self.name} needs a function that makes its input from a picture or sound, not "
                    f"{type(self.processor).__name__}; or record it with attnviz.record(model)"
                )
            own_reader: Any = OWN_MODULES.load()
            return cast("Reader", own_reader(settings, use=use, loaded=(self.model, self.processor)))
        row = MEDIA_ROWS.get(use, PRETRAINED)
        if row in (PRETRAINED, PICTURES) and not hasattr(self._tokenizer, "convert_ids_to_tokens"):
            raise AttnvizError(
                f"a {type(self.processor).__name__} splits no text; give the model's tokenizer or processor"
            )
        is_tokenizer = hasattr(self.processor, "convert_ids_to_tokens")
        if row not in (PRETRAINED, SOUNDS) and is_tokenizer and not hasattr(self.processor, "image_processor"):
            raise AttnvizError(f"a {type(self.processor).__name__} reads no images; give the model's processor")
        if settings.generate and not self.model.can_generate():
            raise AttnvizError(f"{self.name} has no language head, so it cannot generate; load it with its head")
        model, processor = self.model, self.processor
        loaded_reader: Any = row.load()
        if row is SOUNDS:
            return cast("Reader", loaded_reader(settings, use=use, loaded=self._speech_model()))
        if row is PRETRAINED:
            processor = self._tokenizer
        elif row is not PICTURES:
            from attnviz.models.huggingface.loading import IMAGE_CLASSIFIERS, OBJECT_HEADS

            # A classifier's output has no features of single tokens; its part without the head has them.
            heads = IMAGE_CLASSIFIERS if use == "labels" else tuple(OBJECT_HEADS)
            needs_labels = type(self.model).__name__.endswith(heads)
            base_model = getattr(model, "base_model", model)
            # ``base_model`` may be only some of the layers.
            reads_input = model.main_input_name in signature(base_model.forward).parameters
            model = base_model if reads_input and not needs_labels else model
            processor = getattr(processor, "image_processor", processor)
        return cast("Reader", loaded_reader(settings, use=use, loaded=(model, processor)))

    def _speech_model(self) -> "SpeechModel":
        """Returns the model with the extractor and the tokenizer of its processor."""
        from attnviz.models.huggingface.sound_reader import SpeechModel

        extractor = getattr(self.processor, "feature_extractor", self.processor)
        tokenizer = getattr(self.processor, "tokenizer", None)
        is_decoder = self.model.config.is_encoder_decoder
        if not hasattr(extractor, "sampling_rate") or (is_decoder and tokenizer is None):
            raise AttnvizError(f"a {type(self.processor).__name__} reads no sounds; give the model's processor")
        if is_decoder and not self.model.can_generate():
            raise AttnvizError(f"{self.name} has no language head, so it writes no words; load it with its head")
        return SpeechModel(self.model, extractor, tokenizer)

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Turns dropout off in the block, and restores the model's modes and settings of generation after it.

        Inference mode is off in the block, since places of patches are measured from gradients.
        """
        import torch

        from attnviz.capture.model_calls import evaluation_mode

        generation_settings = getattr(self.model, "generation_config", None)
        with torch.inference_mode(mode=False), evaluation_mode(self.model):
            try:
                yield
            finally:
                if generation_settings is not None:
                    self.model.generation_config = generation_settings

    @property
    def _tokenizer(self) -> Any:
        """The tokenizer of the processor; the processor itself if it has none."""
        return getattr(self.processor, "tokenizer", self.processor)
