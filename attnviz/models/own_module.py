"""Reads pictures and sounds with any torch module, by a function that turns one into the module's input."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, final

from attnviz.base.errors import AttnvizError
from attnviz.base.machine import is_out_of_memory
from attnviz.models.reading.captured import error_line
from attnviz.models.reading.example import Example, Prepared, Use
from attnviz.models.reading.reader import Reader
from attnviz.models.reading.settings import ModelSettings
from attnviz.text.tokens import Tokens

if TYPE_CHECKING:
    from pathlib import Path

    import torch
    from PIL.Image import Image as PillowImage
    from torch import nn

    from attnviz.base.arrays import FloatArray
    from attnviz.maps.recording import Recording
    from attnviz.media.image import ImageSource
    from attnviz.media.sound import Sound
    from attnviz.models.places.image_places import Coordinates
    from attnviz.models.reading.computation import Computation
    from attnviz.text.selection import Selection

RATES = ("sampling_rate", "sample_rate")  # attributes of functions of sounds: samples per second that they read
MOST_FLAT_AXES = 3  # an input of a sound with fewer axes lacks that of texts, unless its first axis is 1


@final
class OwnModuleReader(Reader):
    """The reader of a module that the caller has built, and of a function from a picture or sound to its input.

    The function gets a PIL image in RGB, a list if several images were given, or the samples of a sound: an array, or a
    tensor if the function is a module. It returns what the module is called with: a tensor, an array, a tuple of
    arguments, or a mapping of named ones, with or without an axis of texts.
    """

    reads = ("image", "images", "sound")

    def __init__(
        self, settings: ModelSettings, built_in: Sequence[str] = (), use: Use = "maps", loaded: Any = None
    ) -> None:
        super().__init__(settings, built_in, use)
        self._module, self.make_input = loaded
        self._adds_axis = False  # true if the function's tensors lack the axis of texts
        self._inputs: dict[str, Any] = {}  # what the module read last
        self._coordinates: Mapping[str, Coordinates] = {}  # of the numbers in them
        self._reason = ""  # why these are unknown
        self._sound: Sound
        self._samples: FloatArray  # of the sound, at the rate of the function
        self._rate = 0
        self._heard: list[str] = []  # the names of the arguments that the sound sets

    @property
    def module(self) -> "nn.Module":
        """The module of the caller."""
        module: nn.Module = self._module
        return module

    @property
    def name(self) -> str:
        """The name that the settings give the model."""
        return self.settings.model

    def tokenize(self, text: str) -> NoReturn:
        """Raises AttnvizError: the function reads pictures."""
        raise AttnvizError(
            f"{self.name} is no model of transformers, so how it reads texts is not known; record it with "
            "attnviz.record(model, tokens=[…])"
        )

    def inputs_of(self, ids: "torch.Tensor", attention_mask: "torch.Tensor | None" = None) -> NoReturn:
        """Raises AttnvizError: the function reads pictures."""
        self.tokenize("")

    def read(self, example: Example) -> Prepared:
        """Prepares a picture, or several: the module's arguments. Tokens are found once the module has run."""
        from attnviz.media.image import open_images
        from attnviz.models.places.image_places import measured_coordinates
        from attnviz.models.places.token_inputs import UnknownPlacesError

        self.refuse_parts(example)
        if example.sound is not None:
            return self._read_sound(example.sound)
        sources = self._sources(example)
        pictures = open_images(sources)
        self._adds_axis, self._coordinates, self._reason = False, {}, ""
        given = self._given(pictures)
        self._arguments(given)  # an error of the function itself, before it reads pictures that nobody gave
        try:
            sizes = [picture.size for picture in pictures]
            self._coordinates = measured_coordinates(lambda each: self._arguments(self._given(each)), sizes, pictures)
        except UnknownPlacesError as error:
            self._reason = str(error)
        except Exception as error:  # of the function, on a picture that nobody gave
            if is_out_of_memory(error):
                raise
            self._reason = f"the function for pictures fails on one of a single colour or a ramp: {error_line(error)}"
        lacks_axis = any(coordinates.lacks_texts for coordinates in self._coordinates.values())
        self._inputs = self._runnable(given, lacks_axis)
        title = ", ".join(source.name for source in sources)
        return Prepared(self._inputs, Tokens.numbered(0), title=title, is_measured=True)

    def record(self, example: Example, selection: "Selection", values: bool = False) -> "Recording":
        """Records pictures; where places are unknown, tokens are numbered, and a remark says why."""
        from attnviz.media.image import image_of, open_images
        from attnviz.models.places.picture_axes import PartChoice, PictureAxes, attention_part

        recording = super().record(example, selection, values)
        if example.sound is not None:
            return self._with_seconds(recording)
        sources = self._sources(example)
        pictures = open_images(sources)
        images = tuple(image_of(picture, source.name) for picture, source in zip(pictures, sources, strict=True))
        axes = PictureAxes(self.module, self._inputs, lambda: self._coordinates, images, reason=self._reason)
        is_live = self.settings.model == self.name
        choice = PartChoice(self.settings.attention, self.name, is_live, self.module)
        placed = choice.placed(recording, axes)
        maps = [
            replace(each, query_tokens=Tokens.numbered(len(each.query_tokens), "query "))
            if attention_part(each) == "cross"  # objects, latents, actions
            else each
            for each in placed.maps
        ]
        return replace(placed, maps=tuple(maps))

    def compute(self, example: Example, layer: int) -> "Computation":
        """Returns the queries, keys, scores, weights and output of one layer, as `computation_of` does."""
        from attnviz.capture.model_calls import same_draws
        from attnviz.models.reading.captured import computation_of
        from attnviz.text.selection import Selection

        with same_draws():
            maps = self.record(example, Selection(layers=(layer,))).maps[0]
            crosses = maps.kind == "cross"
            prepared = Prepared(
                self._inputs,
                maps.query_tokens,
                context=maps.key_tokens if crosses else None,
                attention="cross" if crosses else None,
            )
            return computation_of(self.module, prepared, layer, self.name)

    def _given(self, pictures: "Sequence[PillowImage]") -> Any:
        """Returns what the function gets for pictures."""
        return pictures[0] if len(pictures) == 1 else list(pictures)

    def _read_sound(self, path: "Path") -> Prepared:
        """Prepares a sound, at the rate that the function names as ``sampling_rate``, or else at its own."""
        from attnviz.media.sound import open_sound, resampled, sound_of

        samples, rate = open_sound(path)
        self._sound, self._rate = sound_of(samples, rate, path.name), rate
        for name in RATES:
            self._rate = int(getattr(self.make_input, name, None) or self._rate)
        self._samples, self._adds_axis = resampled(samples, rate, self._rate), False
        changed = self._arguments(self._samples[::-1].copy())
        arguments = self._arguments(self._samples)
        self._heard = [
            name
            for name, value in arguments.items()
            if getattr(value, "is_floating_point", bool)()
            and value.shape == changed[name].shape
            and not value.equal(changed[name])
        ]
        lacks_axis = any(
            len(arguments[name].shape) < MOST_FLAT_AXES and len(arguments[name]) > 1 for name in self._heard
        )
        self._inputs = self._runnable(self._samples, lacks_axis)
        return Prepared(self._inputs, Tokens.numbered(0), title=path.name, is_measured=True)

    def _with_seconds(self, recording: "Recording") -> "Recording":
        """Returns the recording of a sound with the seconds of its frames, where they can be measured."""
        from attnviz.models.places.sound_places import SoundAxes

        maps, reason = recording.maps, "the function for sounds gives the same numbers for another sound"
        for name in self._heard:
            axes = SoundAxes(
                self.module,
                self._inputs,
                name,
                partial(self._argument, name),
                self._sound,
                len(self._samples),
            )
            maps, reason = tuple(map(axes.placed, recording.maps)), axes.reason
            if any(layer_maps.key_tokens.canvas is self._sound for layer_maps in maps):
                return replace(recording, maps=maps)
        remark = f"Tokens are numbered, not placed in the sound, since {reason.partition(';')[0]}."
        return replace(recording, remarks=(remark, *recording.remarks))

    def _argument(self, name: str, samples: "FloatArray") -> "torch.Tensor":
        """Returns one argument of the module for samples."""
        tensor: torch.Tensor = self._arguments(samples)[name]
        return tensor

    def _sources(self, example: Example) -> "tuple[ImageSource, ...]":
        """Returns the images of an example."""
        return example.images or tuple(filter(None, (example.image,)))

    def _runnable(self, given: Any, lacks_axis: bool) -> dict[str, Any]:
        """Returns the first arguments on which the module runs: with an axis of texts where tensors seem to lack it."""
        import torch

        from attnviz.capture.model_calls import same_draws

        errors = []
        for adds_axis in (lacks_axis, not lacks_axis):
            self._adds_axis = adds_axis
            inputs = self._arguments(given)
            try:
                with same_draws(), torch.no_grad():
                    self.module(**inputs)
            except Exception as error:
                if is_out_of_memory(error):
                    raise
                shapes = [f"{name} {tuple(each.shape)}" for name, each in inputs.items() if hasattr(each, "shape")]
                errors.append((", ".join(shapes), error))
            else:
                return inputs
        shape, first_error = errors[0]
        raise AttnvizError(
            f"{self.name} fails on what the function returns, {shape}: {error_line(first_error)}"
        ) from first_error

    def _arguments(self, given: Any) -> dict[str, Any]:
        """Returns the module's keyword arguments for pictures or samples, on its device and in its precision."""
        import numpy as np
        import torch

        from attnviz.capture.model_calls import arguments_of

        is_sound = isinstance(given, np.ndarray)
        options: dict[str, Any] = {}
        if hasattr(self.make_input, "save_pretrained"):  # a processor of transformers
            options = {"return_tensors": "pt"} | ({"sampling_rate": self._rate} if is_sound else {})
        if is_sound and isinstance(self.make_input, torch.nn.Module):
            given = torch.from_numpy(given)
        with torch.no_grad():
            made = self.make_input(given, **options)
        signature = inspect.signature(self.module.forward)
        kinds = [parameter.kind for parameter in signature.parameters.values()]
        args, keywords = arguments_of(made)
        if inspect.Parameter.VAR_KEYWORD not in kinds:  # processors return more than a module takes
            keywords = {name: value for name, value in keywords.items() if name in signature.parameters}
        arguments = dict(zip(signature.parameters, args, strict=False)) | keywords
        if len(args) > len(kinds) or inspect.Parameter.VAR_POSITIONAL in kinds[: len(args)]:
            raise AttnvizError(
                f"{self.name} does not take {len(args)} arguments by name; let the function return a "
                f"mapping with the names of its arguments, {', '.join(signature.parameters)}"
            )
        parameter = next(self.module.parameters(), torch.empty(0))
        device = "cpu" if parameter.device.type == "meta" else parameter.device
        for name, value in arguments.items():
            array = torch.from_numpy(np.ascontiguousarray(value)) if isinstance(value, np.ndarray) else value
            if isinstance(array, torch.Tensor):
                are_floats = array.is_floating_point() and parameter.is_floating_point()
                moved = array.detach().to(device, parameter.dtype if are_floats else array.dtype)
                arguments[name] = moved[None] if self._adds_axis else moved
        if not any(isinstance(value, torch.Tensor) for value in arguments.values()):
            names = ", ".join(signature.parameters)
            raise AttnvizError(
                f"the function returns {type(made).__name__} without a tensor that {self.name} takes; "
                f"return a tensor or an array, a tuple of them, or a mapping with names of {names}"
            )
        return arguments
