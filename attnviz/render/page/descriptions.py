"""Describes heads and axes of a page in JSON values: metrics, visible keys, labels, words, and images or sound."""

from itertools import pairwise
from typing import Any, assert_never

import numpy as np

from attnviz.base.arrays import IntArray
from attnviz.maps.grouped import Units, written_texts
from attnviz.maps.layer_maps import LayerMaps, mean_visible_key_counts
from attnviz.media.image import Image
from attnviz.media.sound import Sound
from attnviz.media.text import Text
from attnviz.metrics.head_frame import HeadFrame
from attnviz.render.page.encoding import base85
from attnviz.render.page.one_file import text85
from attnviz.render.page.packing import (
    PagePlan,
    axis_edges,
)
from attnviz.report.picture.panels import seconds_of_frames
from attnviz.report.picture.structure import LeftOutKeys, asked_query
from attnviz.text.groups import WORDS
from attnviz.text.named_groups import TURNS
from attnviz.text.places import spaces_before
from attnviz.text.tokens import Tokens

LARGEST_CODE = 65_534  # the code of a metric's largest value; the next code stands for NaN
MAX_LABELLED_TOKENS = 3  # a block of more tokens has the first and the last in its label
IMAGE_QUALITY = 85  # of the JPEG under the weights, 0 to 95


class AxisTexts:
    """The texts of a page's axes; heads with the same tokens share one text."""

    def __init__(self, plan: PagePlan, left_out: LeftOutKeys | None = None) -> None:
        self.plan = plan
        self.left_out = left_out
        self.descriptions: list[dict[str, Any]] = []
        self.index_of_identity: dict[tuple[Any, ...], int] = {}

    def index_of(self, tokens: Tokens, span: slice, keys: Tokens | None = None) -> int:
        """Returns the index of the text of a span of an axis; adds the text if no head had it before."""
        media = tuple(id(medium) for medium in tokens.media if not isinstance(medium, Text))
        spoken_seconds = () if keys is None or self.plan.block > 1 else _spoken_seconds(tokens, span, keys)
        identity = (tokens.text, tokens.labels, span.start, span.stop, media, spoken_seconds)
        if identity not in self.index_of_identity:
            self.index_of_identity[identity] = len(self.descriptions)
            about_words = {"spoken": spoken_seconds} if spoken_seconds else {}
            description = _about_text(tokens, span, self.plan) | about_words
            if self.left_out is not None:
                edges = axis_edges(span, self.plan.block) - span.start
                is_left_out = np.logical_or.reduceat(self.left_out.among(tokens, span), edges[:-1])
                description["leftOut"] = np.flatnonzero(is_left_out).tolist()
            self.descriptions.append(description)
        index = self.index_of_identity[identity]
        is_seen = keys is not None and any(isinstance(medium, Image | Sound) for medium in keys.media)
        if is_seen and self.plan.block == 1:
            self.descriptions[index].setdefault("asked", asked_query(tokens, span))
        return index


def _spoken_seconds(tokens: Tokens, span: slice, frames: Tokens) -> tuple[tuple[float, ...], ...]:
    """Returns for each spoken word in a span: first token, token after the last, and start and end in seconds."""
    from attnviz.metrics.alignment import spoken_words

    words = []
    for word, word_frames in spoken_words(tokens, frames):
        if word.start < span.stop and word.stop > span.start:
            sound = frames.canvas
            assert isinstance(sound, Sound)
            start, stop = frames.places[word_frames.start, 0], frames.places[word_frames.stop - 1, 1]
            seconds = (round(float(sample / sound.rate), 3) for sample in (start, stop))
            words.append((word.start - span.start, word.stop - span.start, *seconds))
    return tuple(words)


def _about_text(tokens: Tokens, span: slice, plan: PagePlan) -> dict[str, Any]:
    """Returns the JSON values of a span of an axis, such as its labels, white space and media."""
    edges = axis_edges(span, plan.block).tolist()
    if plan.block == 1:
        description = {"labels": tokens.labels[span], "first": span.start, "spaces": spaces_before(tokens)[span]}
        # A word may also stand where the page does not go.
        description |= {"cut": True} if span != slice(0, len(tokens)) else {}

        about: dict[str, Any] = {}
        special = np.flatnonzero(tokens.special[span]).tolist()
        if 0 < len(special) < span.stop - span.start:
            about["special"] = special
        units = Units.of(tokens, WORDS)
        numbers = units.numbers[span]
        starts = np.zeros(0, dtype=np.int64)
        if len(numbers):
            starts = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1))  # the first token starts a word as well
        if len(starts) < len(numbers):
            has_label = (units.sizes > 1) | isinstance(tokens.canvas, Sound)  # a frame's own label is its second
            word_labels = [units.labels[number] if has_label[number] else "" for number in numbers[starts].tolist()]
            about["words"] = {"starts": starts.tolist(), "labels": word_labels}
        written, medium = _about_written(tokens, span), about_medium(tokens, edges)
        if written and "images" in medium:  # a text in turns, of which some are pictures
            medium = {"pictures": medium["images"]}
        return description | written | about | medium
    labels = []
    for first, stop in pairwise(edges):
        block = tokens.labels[first:stop]
        labels.append(" ".join(block) if len(block) <= MAX_LABELLED_TOKENS else f"{block[0]} … {block[-1]}")
    return {"labels": labels, "edges": edges, "spaces": " " * len(labels)} | about_medium(tokens, edges)


def _about_written(tokens: Tokens, span: slice) -> dict[str, Any]:
    """Returns what is written in each unit of several words as ``written``, "" where a label says it; else empty."""
    if ((tokens.ids >= 0) | tokens.in_image)[span].all():  # tokens and no units of several
        return {}
    written = written_texts(tokens)[span]
    if not any(len(text.split()) > 1 for text in written):
        return {}
    return {"written": written, "asked": len(written) - 1}


def turn_pieces(tokens: Tokens) -> dict[str, Any]:
    """Returns the tokens of each turn and where they begin in what is written there, as JSON values, ``pieces``."""
    units = Units.of(tokens, TURNS)
    starts = units.as_tokens().places[:, 0]
    pieces = []
    for unit, start in enumerate(starts.tolist()):
        members = np.flatnonzero(units.numbers == unit)
        pieces.append([members.tolist(), np.maximum(tokens.places[members, 0] - start, 0).tolist()])
    return {"pieces": pieces}


def about_medium(tokens: Tokens, edges: list[int]) -> dict[str, Any]:
    """Returns the JSON values with which the page draws the images or the sound of an axis.

    Returns {} without images, unless all tokens of the page are frames of a sound, at least three.
    """
    images: list[dict[str, Any]] = []
    has_words = False
    medium_numbers = tokens.medium[edges[0] : edges[-1]]
    for number, medium in enumerate(tokens.media):
        in_medium = medium_numbers == number
        match medium:
            case Image() if in_medium.any():
                # Only cells whose tokens all lie in the image have a place in it.
                starts = np.array(edges) - edges[0]
                cells = np.searchsorted(starts, np.arange(len(in_medium)), side="right") - 1
                is_whole = np.logical_and.reduceat(in_medium, starts[:-1])[cells]
                patches = tokens.places[edges[0] : edges[-1]][is_whole]
                images.append(_about_image(medium, cells[is_whole], patches))
            case Text():
                has_words = has_words or bool(in_medium.any())
            case Sound() if in_medium.all():
                seconds = seconds_of_frames(tokens)
                if seconds is None or not seconds[1]:
                    return {}
                about_envelope = {"envelope": text85(medium.envelope.tobytes()), "length": medium.seconds}
                rounded_seconds = [round(second, 6) for second in seconds]
                return {"medium": "sound", "sound": about_envelope, "seconds": rounded_seconds}
            case Image() | Sound():  # frames of a sound among other tokens are labelled by their seconds
                pass
            case unknown:
                assert_never(unknown)
    if not images:
        return {}
    return {"medium": "image", "images": images, "others": "words" if has_words else "tokens without a place"}


def _about_image(image: Image, cells: IntArray, places: IntArray) -> dict[str, Any]:
    import base64
    import io

    from PIL import Image as Pillow

    with io.BytesIO() as file:
        Pillow.fromarray(image.grey).save(file, "JPEG", quality=IMAGE_QUALITY)
        source = "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()
    size = {"width": image.width, "height": image.height, "grey": round(float(np.median(image.grey)))}
    left, top, right, bottom = places.T
    order = np.argsort(-(right - left) * (bottom - top), kind="stable")  # patches of tiles over those of a whole image
    cells, places = cells[order], places[order]
    about = {"src": source, **size, "title": image.title, "tokens": cells.tolist(), "boxes": places.tolist()}
    return about | ({"seconds": image.seconds} if image.seconds else {})


def about_metrics(frame: HeadFrame | None) -> dict[str, Any] | None:
    """Returns metrics as 16-bit codes, and patterns as indices of a list, in JSON values; ``None`` without metrics.

    Codes from 0 to `LARGEST_CODE` run from the smallest value of a metric to its largest, both extended to include 0;
    the next code is NaN. A metric that is 0 for all heads runs to 1.
    """
    if frame is None:
        return None
    values, patterns_of_heads = frame.values, [row.patterns for row in frame.rows]
    lows, highs = np.nanmin(values, axis=0, initial=0.0), np.nanmax(values, axis=0, initial=0.0)
    highs[highs == lows] += 1.0  # the range is a divisor
    codes = np.rint(np.nan_to_num((values - lows) / (highs - lows) * LARGEST_CODE, nan=LARGEST_CODE + 1))
    distinct_patterns = dict.fromkeys(
        (pattern.name, pattern.token) for patterns in patterns_of_heads for pattern in patterns
    )
    pattern_index = {name: index for index, name in enumerate(distinct_patterns)}
    return {
        "names": frame.names,
        "units": [measure.unit for measure in frame.measures],
        "meanings": [measure.meaning for measure in frame.measures],
        "lows": lows.tolist(),
        "highs": highs.tolist(),
        "codes": base85(codes.astype("<u2").tobytes()).decode("ascii"),
        "patterns": list(distinct_patterns),
        "of": [[pattern_index[pattern.name, pattern.token] for pattern in patterns] for patterns in patterns_of_heads],
        "values": [
            [None if pattern.value is None else round(pattern.value, 4) for pattern in patterns]
            for patterns in patterns_of_heads
        ],
        "every": frame.stride,
    }


class VisibleCounts:
    """The numbers of visible keys of each head's queries; heads with the same numbers share an entry.

    Attributes:
        descriptions: the distinct entries, as JSON values.
        index_of_counts: the index of each entry by the bytes of its counts.
        index_of_queries: the index of the entry by maps, head and range of queries.
    """

    def __init__(self) -> None:
        self.descriptions: list[dict[str, Any]] = []
        self.index_of_counts: dict[bytes, int] = {}
        self.index_of_queries: dict[tuple[int, int, int, int], int] = {}

    def index_of(self, maps: LayerMaps, head: int, queries: slice, edges: list[int]) -> int:
        """Returns the index of the entry for a range of queries of a head.

        Adds an entry if no head had the same counts before.
        """
        identity = id(maps), head, queries.start, queries.stop
        if identity not in self.index_of_queries:
            counts = mean_visible_key_counts(maps, head, edges)
            content = counts.tobytes()
            if content not in self.index_of_counts:
                self.index_of_counts[content] = len(self.descriptions)
                step = float(counts[1] - counts[0]) if len(counts) > 1 else 0.0
                if np.allclose(counts, counts[0] + step * np.arange(len(counts))):
                    self.descriptions.append({"first": float(counts[0]), "step": step})
                else:
                    self.descriptions.append({"counts": [round(float(count), 2) for count in counts]})
            # Heads of a group share their mask, so their counts are the same.
            [head_group] = [group for group in maps.head_groups(maps.heads) if head in group]
            self.index_of_queries |= {
                (id(maps), member, queries.start, queries.stop): self.index_of_counts[content] for member in head_group
            }
        return self.index_of_queries[identity]
