"""Builds films: reports of the same kind, one after another, on one colour scale."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from attnviz.base.errors import AttnvizError, option
from attnviz.base.progress import track
from attnviz.maps.recording import Recording
from attnviz.metrics.steps import DecodingSteps
from attnviz.report.build import build_report
from attnviz.report.decoding import steps_caption
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.panels import Panel, Quantity
from attnviz.report.picture.report import DrawnReport
from attnviz.report.picture.scales import are_clipped, with_limits
from attnviz.text.selection import Selection

MAX_FRAMES = 500


@dataclass(frozen=True, eq=False, kw_only=True)
class Film:
    """Pictures that are shown one after another."""

    frames: tuple[DrawnReport, ...]  # the pictures, with colour scales in common
    caption: str  # the film in one sentence


def film_of_steps(recording: Recording, steps: DecodingSteps, options: ReportOptions) -> Film:
    """Returns a film with a picture for each step: the text or the image, shaded by the weights of the step's query."""
    _refuse_long_film(len(steps), f"choose some: {option('queries', '10:40')}")
    of_heads = replace(options, selection=Selection.parse(heads=",".join(steps.heads)))
    frames = []
    for step, query in enumerate(track(steps.queries.tolist(), "drawing")):
        token = steps.tokens[step]
        title = f"step {step + 1} of {len(steps)}" + (f" wrote “{token}”" if token else "")
        look = replace(options.look, query=f"@{query}", style="text", title=title)
        frames.append(build_report(recording, replace(of_heads, look=look)))
    return _film(frames, steps_caption(recording, steps))


def film_of_recordings(recordings: Sequence[Recording], names: Sequence[str], options: ReportOptions) -> Film:
    """Returns a film of the same heads in several recordings, such as checkpoints of one training."""
    _refuse_long_film(len(recordings), "give fewer recordings")
    looks = [replace(options.look, title=options.look.title or name) for name in names]
    frames = [
        build_report(recording, replace(options, look=look))
        for recording, look in zip(track(recordings, "drawing"), looks, strict=True)
    ]
    scale = "each head on one colour scale of its own" if options.look.color_limits == "head" else "on one colour scale"
    return _film(frames, f"{len(names)} recordings, {names[0]} to {names[-1]}, {scale}.")


def _refuse_long_film(frame_count: int, advice: str) -> None:
    """Raises AttnvizError for more than `MAX_FRAMES` pictures; the message ends with the advice."""
    if frame_count > MAX_FRAMES:
        raise AttnvizError(f"a film has at most {MAX_FRAMES} pictures, not {frame_count}; {advice}")


def _film(reports: Sequence[object], caption: str) -> Film:
    """Returns the film of the reports; all panels of a quantity, or of a head on request, share one colour scale."""
    frames = [report for report in reports if isinstance(report, DrawnReport)]
    shapes = {tuple((panel.heading.head, panel.values.shape) for panel in frame.panels) for frame in frames}
    if len(frames) < len(reports) or len(shapes) > 1:
        raise AttnvizError(
            "the pictures of a film need the same heads and the same number of tokens, and these differ; choose a head "
            f"that all have, such as {option('heads', '0.1')}, and texts of one length"
        )
    panels_of_scale: dict[tuple[str, Quantity], list[Panel]] = {}
    for frame in frames:
        for panel in frame.panels:
            panels_of_scale.setdefault(_scale_key(panel, frame), []).append(panel)
    scale_of = {}
    for key, panels in panels_of_scale.items():
        scales = [panel.scale for panel in panels]
        low, high = min(scale.low for scale in scales), max(scale.high for scale in scales)
        is_clipped = any(scale.clipped for scale in scales) and are_clipped(panels, high)
        scale_of[key] = replace(scales[0], low=low, high=high, clipped=is_clipped)
    colored_frames = []
    for frame in frames:
        panels = [replace(panel, scale=scale_of[_scale_key(panel, frame)]) for panel in frame.panels]
        titled_panels = tuple(with_limits(panel) if panel.heading.limits else panel for panel in panels)
        colored_frames.append(replace(frame, panels=titled_panels))
    return Film(frames=tuple(colored_frames), caption=caption)


def _scale_key(panel: Panel, frame: DrawnReport) -> tuple[str, Quantity]:
    """Returns what the panels of one scale share in all frames: their quantity, and their head on request."""
    return panel.heading.head if frame.look.color_limits == "head" else "", panel.color_quantity
