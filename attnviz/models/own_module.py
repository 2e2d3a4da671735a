"""Reads pictures and sounds with any torch module, by a function that turns one into the module's input."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, final

from attnviz.base.errors import AttnvizError
from attnviz.base.machine import is_out_of_memory
from attnviz.base.own_file import is_own_file
from attnviz.models.reading.captured import error_line
from attnviz.models.reading.example import Example, FoundToken, Prepared, Use
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
    from attnviz.media.image import Image
    from attnviz.models.places.image_places import Coordinates
    from attnviz.models.reading.computation import Computation

RATES = ("sampling_rate", "sample_rate")  # attributes of functions of sounds: samples per second that they read
MOST_FLAT_AXES = 3  # an input of a sound with fewer axes lacks that of texts, unless its first axis is 1


@final
class OwnModuleReader(Reader):
    """The reader of a module that the caller has built, and of a function from a picture or sound to its input.

    The function gets a PIL image in RGB, a list if several images were given, or the samples of a sound: an array, or a
    tensor if the function is a module. It returns what the module is called with: a tensor, an array, a tuple of
    arguments, or a mapping, of named arguments or whole as the first one, with or without an axis of texts.
    """

    reads = ("image", "images", "sound")

    def __init__(
        self, settings: ModelSettings, built_in: Sequence[str] = (), use: Use = "maps", loaded: Any = None
    ) -> None:
        super().__init__(settings, built_in, use)
        self._module, self.make_input = loaded

    @property
    def module(self) -> "nn.Module":
        """The module of the caller."""
        module: nn.Module = self._module
        return module

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
        from attnviz.media.image import image_of, open_images
        from attnviz.models.places.image_places import measured_coordinates
        from attnviz.models.places.token_inputs import UnknownPlacesError

        self.refuse_parts(example)
        if example.sound is not None:
            return self._read_sound(example.sound)
        sources = example.images or tuple(filter(None, (example.image,)))
        pictures = open_images(sources)

        def arguments(given: "Sequence[PillowImage]", adds_axis: bool = False) -> dict[str, Any]:
            return self._arguments(given[0] if len(given) == 1 else list(given), adds_axis)

        arguments(pictures)  # an error of the function itself, before it reads pictures that nobody gave
        coordinates: dict[str, Coordinates] = {}
        reason = ""
        try:
            coordinates = measured_coordinates(arguments, [picture.size for picture in pictures], pictures)
        except UnknownPlacesError as error:
            reason = str(error)
        except Exception as error:  # of the function, on a picture that nobody gave
            if is_out_of_memory(error):
                raise
            reason = f"the function for pictures fails on one of a single colour or a ramp: {error_line(error)}"
        lacks_axis = any(each.lacks_texts for each in coordinates.values())
        inputs, _ = self._runnable(partial(arguments, pictures), lacks_axis)
        images = tuple(image_of(picture, source.name) for picture, source in zip(pictures, sources, strict=True))
        return Prepared(
            inputs,
            Tokens.numbered(0),
            title=", ".join(source.name for source in sources),
            place=partial(self._with_places, inputs, coordinates, images, reason),
        )

    def _with_places(
        self,
        inputs: dict[str, Any],
        coordinates: "Mapping[str, Coordinates]",
        images: "tuple[Image, ...]",
        reason: str,
        recording: "Recording",
    ) -> "Recording":
        """Returns a recording of pictures with places; where they are unknown, tokens are numbered, with the reason."""
        from attnviz.models.places.picture_axes import PartChoice, PictureAxes, attention_part

        axes = PictureAxes(self.module, inputs, lambda: coordinates, images, reason=reason)
        is_live = not is_own_file(self.settings.model)
        choice = PartChoice(self.settings.attention, self.name, is_live, self.module)
        placed = choice.placed(recording, axes)
        maps = [
            replace(each, query_tokens=Tokens.numbered(len(each.query_tokens), "query "))
            if attention_part(each) == "cross"  # objects, latents, actions
            else each
            for each in placed.maps
        ]
        return replace(placed, maps=tuple(maps))

    def _read_sound(self, path: "Path") -> Prepared:
        """Prepares a sound, at the rate that the function names as ``sampling_rate``, or else at its own."""
        from attnviz.capture.model_calls import tensors_in
        from attnviz.media.sound import open_sound, resampled, sound_of

        samples, file_rate = open_sound(path)
        sound, rate = sound_of(samples, file_rate, path.name), file_rate
        for name in RATES:
            rate = int(getattr(self.make_input, name, None) or rate)
        samples = resampled(samples, file_rate, rate)
        arguments = partial(self._arguments, rate=rate)
        changed, tensors = (tensors_in(arguments(each)) for each in (samples[::-1].copy(), samples))
        heard = [
            name
            for name, value in tensors.items()
            if value.is_floating_point() and value.shape == changed[name].shape and not value.equal(changed[name])
        ]
        lacks_axis = any(tensors[name].dim() < MOST_FLAT_AXES and len(tensors[name]) > 1 for name in heard)
        inputs, adds_axis = self._runnable(partial(arguments, samples), lacks_axis)

        def place(recording: "Recording") -> "Recording":
            """Returns the recording with the seconds of its frames, where they can be measured."""
            from attnviz.models.places.sound_places import SoundAxes

            reason = "the function for sounds gives the same numbers for another sound"
            for name in heard:

                def extract(given: "FloatArray", name: str = name) -> "torch.Tensor":
                    return tensors_in(arguments(given, adds_axis))[name]

                axes = SoundAxes(self.module, inputs, name, extract, sound, len(samples))
                maps, reason = tuple(map(axes.placed, recording.maps)), axes.reason
                if any(layer_maps.key_tokens.canvas is sound for layer_maps in maps):
                    return replace(recording, maps=maps)
            remark = f"Tokens are numbered, not placed in the sound, since {reason.partition(';')[0]}."
            return replace(recording, remarks=(remark, *recording.remarks))

        return Prepared(inputs, Tokens.numbered(0), title=path.name, place=place)

    def find_token(self, label: str, tokens: Tokens) -> FoundToken:
        """Returns the output of a classifier with this number; other labels are not known."""
        if not label.isdecimal():
            raise AttnvizError(f"{self.name} names no labels, so {label!r} is unknown; give the number of an output")
        return FoundToken(int(label), label)

    def label_of(self, token_id: int, tokens: Tokens) -> str:
        """Returns the number of an output."""
        return str(token_id)

    def prediction(self, *given: Any, **options: Any) -> NoReturn:
        """Raises AttnvizError: only what is said after a token of a text is explained."""
        raise AttnvizError(
            f"{self.name} reads no tokens of a text, after which a prediction would be explained; attnviz.ablate in "
            "Python measures any output without heads"
        )

    def compute(self, example: Example, layer: int) -> "Computation":
        """Returns the queries, keys, scores, weights and output of one layer, as `computation_of` does."""
        from attnviz.capture.model_calls import same_draws
        from attnviz.models.reading.captured import computation_of
        from attnviz.text.selection import Selection

        prepared = self.read(example)
        with same_draws():
            maps = self.recorded(prepared, Selection(layers=(layer,))).maps[0]
            crosses = maps.kind == "cross"
            placed = Prepared(
                prepared.inputs,
                maps.query_tokens,
                context=maps.key_tokens if crosses else None,
                attention="cross" if crosses else None,
            )
            return computation_of(self.module, placed, layer, self.name)

    def _runnable(self, arguments: "Callable[..., dict[str, Any]]", lacks_axis: bool) -> tuple[dict[str, Any], bool]:
        """Returns the first arguments on which the module runs, and whether an axis of texts was added to them.

        It is added first where tensors seem to lack it.
        """
        import torch

        from attnviz.capture.model_calls import same_draws, tensors_in

        errors = []
        for adds_axis in (lacks_axis, not lacks_axis):
            inputs = arguments(adds_axis=adds_axis)
            try:
                with same_draws(), torch.no_grad():
                    self.module(**inputs)
            except Exception as error:
                if is_out_of_memory(error):
                    raise
                shapes = [f"{name} {tuple(each.shape)}" for name, each in tensors_in(inputs).items()]
                errors.append((", ".join(shapes), error))
            else:
                return inputs, adds_axis
        shape, first_error = errors[0]
        raise AttnvizError(
            f"{self.name} fails on what the function returns, {shape}: {error_line(first_error)}"
        ) from first_error

    def _arguments(self, given: Any, adds_axis: bool = False, rate: int = 0) -> dict[str, Any]:
        """Returns the module's keyword arguments for pictures or samples, on its device and in its precision.

        A mapping of which no name is an argument is the first argument itself, as of ``forward(batch)``.
        """
        import numpy as np
        import torch

        from attnviz.capture.model_calls import arguments_of, map_leaves, tensors_in

        is_sound = isinstance(given, np.ndarray)
        options: dict[str, Any] = {}
        if hasattr(self.make_input, "save_pretrained"):  # a processor of transformers
            options = {"return_tensors": "pt"} | ({"sampling_rate": rate} if is_sound else {})
        if is_sound and isinstance(self.make_input, torch.nn.Module):
            given = torch.from_numpy(given)
        with torch.no_grad():
            try:
                made = self.make_input(given, **options)
            except (AttributeError, TypeError) as error:
                if not isinstance(given, list) or "list" not in str(error):
                    raise
                raise AttnvizError(
                    f"with {len(given)} images the function gets a list of them, and it fails: {error_line(error)}; "
                    "let it return one input of all, or give one image"
                ) from error
        parameters = inspect.signature(self.module.forward).parameters
        kinds = [parameter.kind for parameter in parameters.values()]
        args, keywords = arguments_of(made)
        takes_any_name = inspect.Parameter.VAR_KEYWORD in kinds
        needs_first = any(parameter.default is inspect.Parameter.empty for parameter in [*parameters.values()][:1])
        if not args and parameters.keys().isdisjoint(keywords) and needs_first and kinds[0] != kinds[0].VAR_KEYWORD:
            args, keywords = (made,), {}
        elif not takes_any_name:  # processors return more than a module takes
            keywords = {name: value for name, value in keywords.items() if name in parameters}
        if len(args) > len(kinds) or inspect.Parameter.VAR_POSITIONAL in kinds[: len(args)]:
            raise AttnvizError(
                f"{self.name} takes {', '.join(parameters)}, and not {len(args)} arguments by name; "
                "let the function return as many, or a mapping with their names"
            )
        parameter = next(self.module.parameters(), torch.empty(0))
        device = "cpu" if parameter.device.type == "meta" else parameter.device

        def as_read(_: str, value: Any) -> Any:
            tensor = torch.from_numpy(np.ascontiguousarray(value)) if isinstance(value, np.ndarray) else value
            if not isinstance(tensor, torch.Tensor):
                return tensor
            are_floats = tensor.is_floating_point() and parameter.is_floating_point()
            moved = tensor.detach().to(device, parameter.dtype if are_floats else tensor.dtype)
            return moved[None] if adds_axis else moved

        arguments: dict[str, Any] = map_leaves(dict(zip(parameters, args, strict=False)) | keywords, as_read)
        if not tensors_in(arguments):
            raise AttnvizError(
                f"the function returns {type(made).__name__} without a tensor that {self.name} takes; return a tensor "
                f"or an array, a tuple of arguments ({', '.join(parameters)}), or a mapping that holds such"
            )
        return arguments
