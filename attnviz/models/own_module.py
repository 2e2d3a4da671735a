"""Reads pictures with any torch module, by a function that turns a picture into the module's input."""

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, final

from attnviz.base.errors import AttnvizError
from attnviz.base.machine import is_out_of_memory
from attnviz.models.reading.captured import error_line
from attnviz.models.reading.example import Example, Prepared
from attnviz.models.reading.reader import Reader, Use
from attnviz.models.reading.settings import ModelSettings
from attnviz.text.tokens import Tokens

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image as PillowImage
    from torch import nn

    from attnviz.maps.recording import Recording
    from attnviz.media.image import ImageSource
    from attnviz.models.places.image_places import Coordinates
    from attnviz.text.selection import Selection


@final
class OwnModuleReader(Reader):
    """The reader of a module that the caller has built, and of a function from a picture to its input.

    The function gets a PIL image in RGB, or a list if several images were given. It returns what the module is called
    with: a tensor, an array, a tuple of arguments, or a mapping of named ones, with or without an axis of texts.
    """

    reads = ("image", "images")

    def __init__(
        self, settings: ModelSettings, built_in: Sequence[str] = (), use: Use = "maps", loaded: Any = None
    ) -> None:
        super().__init__(settings, built_in, use)
        self._module, self.make_input = loaded
        self._adds_axis = False  # true if the function's tensors lack the axis of texts
        self._inputs: dict[str, Any] = {}  # what the module read last
        self._coordinates: Mapping[str, Coordinates] = {}  # of the numbers in them
        self._reason = ""  # why these are unknown

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
        sources = self._sources(example)
        pictures = open_images(sources)
        self._adds_axis, self._coordinates, self._reason = False, {}, ""
        self._arguments(pictures)  # an error of the function itself, before it reads pictures that nobody gave
        try:
            self._coordinates = measured_coordinates(self._arguments, [picture.size for picture in pictures])
        except UnknownPlacesError as error:
            self._reason = str(error)
        lacks_axis = any(coordinates.lacks_texts for coordinates in self._coordinates.values())
        self._inputs = self._runnable(pictures, lacks_axis)
        title = ", ".join(source.name for source in sources)
        return Prepared(self._inputs, Tokens.numbered(0), title=title, in_call_order=True)

    def record(self, example: Example, selection: "Selection", values: bool = False) -> "Recording":
        """Records pictures; where places are unknown, tokens are numbered, and a remark says why."""
        from attnviz.media.image import image_of, open_images
        from attnviz.models.places.picture_axes import PartChoice, PictureAxes
        from attnviz.models.places.token_inputs import same_draws

        with same_draws():
            recording = super().record(example, selection, values)
        sources = self._sources(example)
        pictures = open_images(sources)
        images = tuple(image_of(picture, source.name) for picture, source in zip(pictures, sources, strict=True))
        axes = PictureAxes(self.module, self._inputs, lambda: self._coordinates, images, reason=self._reason)
        choice = PartChoice(self.settings.attention, self.name, is_live=True, module=self.module)
        return choice.placed(recording, axes)

    def _sources(self, example: Example) -> "tuple[ImageSource, ...]":
        """Returns the images of an example."""
        return example.images or tuple(filter(None, (example.image,)))

    def _runnable(self, pictures: "Sequence[PillowImage]", lacks_axis: bool) -> dict[str, Any]:
        """Returns the first arguments on which the module runs: with an axis of texts where tensors seem to lack it."""
        import torch

        from attnviz.models.places.token_inputs import same_draws

        errors = []
        for adds_axis in (lacks_axis, not lacks_axis):
            self._adds_axis = adds_axis
            inputs = self._arguments(pictures)
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
            f"{self.name} fails on what the function for pictures returns, {shape}: {error_line(first_error)}"
        ) from first_error

    def _arguments(self, pictures: "Sequence[PillowImage]") -> dict[str, Any]:
        """Returns the module's keyword arguments for pictures, on its device and in its precision."""
        import numpy as np
        import torch

        from attnviz.capture.model_calls import arguments_of

        made = self.make_input(pictures[0] if len(pictures) == 1 else list(pictures))
        signature = inspect.signature(self.module.forward)
        kinds = [parameter.kind for parameter in signature.parameters.values()]
        args, keywords = arguments_of(made)
        if inspect.Parameter.VAR_KEYWORD not in kinds:  # processors return more than a module takes
            keywords = {name: value for name, value in keywords.items() if name in signature.parameters}
        arguments = dict(zip(signature.parameters, args, strict=False)) | keywords
        if len(args) > len(kinds) or inspect.Parameter.VAR_POSITIONAL in kinds[: len(args)]:
            raise AttnvizError(
                f"{self.name} does not take {len(args)} arguments by name; let the function for pictures return a "
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
                f"the function for pictures returns {type(made).__name__} without a tensor that {self.name} takes; "
                f"return a tensor or an array, a tuple of them, or a mapping with names of {names}"
            )
        return arguments
