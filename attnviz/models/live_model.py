"""Opens a model of transformers that the caller has loaded with the readers that open one in a folder."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any

from attnviz.base.errors import AttnvizError
from attnviz.models.huggingface.loading import IMAGE_CLASSIFIERS
from attnviz.models.sources import MEDIA_ROWS, PICTURES, PRETRAINED, SourceRow

if TYPE_CHECKING:
    from attnviz.models.reading.reader import Reader, Use
    from attnviz.models.reading.settings import ModelSettings


@dataclass(frozen=True, eq=False)
class LiveModel:
    """A model of transformers that the caller has loaded, with its processor.

    Attributes:
        model: the model.
        processor: its processor; a tokenizer is enough for texts, an image processor for images.
    """

    model: Any
    processor: Any

    @property
    def name(self) -> str:
        """The name of the model's class."""
        return type(self.model).__name__

    def reader(self, settings: "ModelSettings", use: "Use") -> "Reader":
        """Returns the reader of the model for a use."""
        if not hasattr(self.model, "main_input_name"):
            raise AttnvizError(f"{self.name} is no model of transformers; record it with attnviz.record(model)")
        row = MEDIA_ROWS.get(use, PRETRAINED)
        if row in (PRETRAINED, PICTURES) and not hasattr(self._tokenizer, "convert_ids_to_tokens"):
            raise AttnvizError(
                f"a {type(self.processor).__name__} splits no text; give the model's tokenizer or processor"
            )
        is_tokenizer = hasattr(self.processor, "convert_ids_to_tokens")
        if row is not PRETRAINED and is_tokenizer and not hasattr(self.processor, "image_processor"):
            raise AttnvizError(f"a {type(self.processor).__name__} reads no images; give the model's processor")
        if settings.generate and not self.model.can_generate():
            raise AttnvizError(f"{self.name} has no language head, so it cannot generate; load it with its head")
        loaded_reader: Any = row.load()
        reader: Reader = loaded_reader(settings, use=use, loaded=self._model_and_processor(row, use))
        return reader

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Turns dropout off in the block, and restores the model's modes and settings of generation after it.

        Inference mode is off in the block, since places of patches are measured from gradients.
        """
        import torch

        from attnviz.capture.runs import evaluation_mode

        generation_settings = getattr(self.model, "generation_config", None)
        with torch.inference_mode(mode=False), evaluation_mode(self.model):
            try:
                yield
            finally:
                if generation_settings is not None:
                    self.model.generation_config = generation_settings

    def _model_and_processor(self, row: SourceRow, use: "Use") -> tuple[Any, Any]:
        """Returns the model, or its part without output layer, and what the reader takes of the processor."""
        if row is PRETRAINED:
            return self.model, self._tokenizer
        if row is PICTURES:
            return self.model, self.processor
        # A classifier's output has no features of single tokens; its part without the head has them.
        needs_labels = use == "labels" and self.name.endswith(IMAGE_CLASSIFIERS)
        base_model = getattr(self.model, "base_model", self.model)
        # ``base_model`` may be only some of the layers.
        reads_input = self.model.main_input_name in signature(base_model.forward).parameters
        model = base_model if reads_input and not needs_labels else self.model
        return model, getattr(self.processor, "image_processor", self.processor)

    @property
    def _tokenizer(self) -> Any:
        """The tokenizer of the processor; the processor itself if it has none."""
        return getattr(self.processor, "tokenizer", self.processor)
