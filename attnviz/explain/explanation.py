"""Defines `attnviz.explanation`, which explains a head of a model that the caller has loaded."""

from io import BytesIO
from typing import TYPE_CHECKING

from attnviz.base.errors import AttnvizError
from attnviz.report.picture.look import Look
from attnviz.text.selection import parse_head

if TYPE_CHECKING:
    from attnviz.api.reading import Reading


def explanation(
    recording: "Reading",
    head: str,
    suffix: str = ".md",
    *,
    step: str | None = None,
    pair: tuple[str, str] | None = None,
) -> str:
    """Returns the text that ``attnviz explain … --head HEAD -o FILE`` writes.

    Args:
        recording: what ``attnviz.reading`` returned; its model runs again.
        head: the head, such as ``1.3``.
        suffix: the suffix of the file: ``.md`` or ``.html``.
        step: the name of a single step, such as ``softmax``; ``None`` for all usual ones.
        pair: a query and a key, each as a token or its number; only their score is explained, feature by feature.

    Raises:
        AttnvizError: if the recording holds no model, the suffix, head, step or token is unknown, or the layer cannot
            be explained.

    Example:
        >>> import attnviz, numpy, transformers
        >>> sizes = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
        >>> model = transformers.ViTModel(transformers.ViTConfig(**sizes, image_size=32, patch_size=16))
        >>> processor = transformers.ViTImageProcessor(size={"height": 32, "width": 32})
        >>> photo = numpy.zeros((64, 64, 3), dtype=numpy.uint8)
        >>> attnviz.explanation(attnviz.reading(model, processor, images=[photo]), "0.1")[:8]
        '# image\\n'
    """
    from attnviz.api.reading import Reading
    from attnviz.explain.explain import explain
    from attnviz.explain.formats import format_of, line_width, write

    if not isinstance(recording, Reading):
        raise AttnvizError("this recording holds no model to explain; give one that attnviz.reading returned")
    format_of(suffix)
    layer, number = parse_head(head)
    look, file = Look(), BytesIO()
    write(explain(recording.compute(layer), number, step, line_width(suffix, look), look, pair), suffix, file)
    return file.getvalue().decode()
