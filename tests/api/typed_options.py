"""What the type checker says of options: an unused ``ignore`` is an error of ``python -m tools.check types``.

Nothing runs this file.
"""

import attnviz


def accepted(recording: attnviz.Recording) -> None:
    """Options that there are, with values of their types."""
    svg: bytes = attnviz.draw(recording, ".svg", heads="4.11", theme="dark", reduce="rollout", residual=0.5)
    recording.show(words=True, top=len(svg))
    recording.figure(size="8x6", font_size=7)


def refused(recording: attnviz.Recording) -> None:
    """An option that there is not, a value of another type, and a misspelt option."""
    attnviz.draw(recording, ".svg", color="red")  # type: ignore[call-arg]
    recording.show(top="3")  # type: ignore[arg-type]
    recording.figure(dpis=50)  # type: ignore[call-arg]
