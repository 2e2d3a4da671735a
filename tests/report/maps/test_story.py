"""Notes become pictures of the places that they are pinned to, in their order."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from attnviz.base.errors import AttnvizError
from attnviz.maps.recording import Recording
from attnviz.media.image import Image
from attnviz.report.build import build_report
from attnviz.report.maps.deck import MAX_NOTED_PICTURES
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.report import Chapter, DrawnReport
from attnviz.text.selection import Selection
from attnviz.text.tokens import Tokens
from tests.conftest import dense, random_maps
from tests.report.image_examples import image_recording

LABELS = ("the", "cat", "sat", "it", "purred")


@pytest.fixture(scope="module")
def recording() -> Recording:
    tokens = replace(Tokens.numbered(5), labels=LABELS)
    return Recording(
        maps=tuple(random_maps(tokens, layer=layer, heads=8, seed=layer) for layer in range(2)), model="a test"
    )


def story_of(recording: Recording, tmp_path: Path, *lines: str, reduce: str | None = None) -> tuple[Chapter, ...]:
    file = tmp_path / "notes.txt"
    file.write_text("\n".join(lines))
    report = build_report(recording, ReportOptions(look=Look(notes=str(file)), reduce=reduce))
    assert isinstance(report, DrawnReport)
    return report.story


def test_head_of_a_note_is_drawn_with_its_pair_outlined(recording: Recording, tmp_path: Path) -> None:
    first, second = story_of(recording, tmp_path, "#head=1.2&query=it&key=cat Its noun.", "#head=0.1&query=2 Sat.")
    assert [first.text, second.text] == ["Its noun.", "Sat."]
    [panel] = first.report.panels
    np.testing.assert_allclose(panel.values, dense(recording, 1).weights[2])
    assert panel.outline == (3, 1, 1, 1)
    assert second.report.panels[0].title.startswith("head 0.1")
    assert second.report.panels[0].outline == (2, 0, 1, 5)


@pytest.mark.parametrize(
    ("place", "kind", "heads", "said"),
    [
        (
            "#head=1.2&query=r0c1",
            "text",
            1,
            "Colours show what the patch at the upper middle (r0c1) looks at",
        ),
        ("#head=1.2", "text", 1, "Colours show what “[CLS]” looks at, over the image in grey."),
        (
            "#query=r0c1",
            "text",
            6,
            "Colours show what the patch at the upper middle (r0c1) looks at",
        ),
        ("#heads=1.2,0.0&together=mean&query=r0c1", "text", 1, "Each cell is the mean over the heads"),
        ("#head=1.2&view=matrix&query=r0c1", "maps", 1, "Outlined: the patch at the upper middle (r0c1) as query."),
        ("#head=1.2&key=r0c1", "maps", 1, "Outlined: the patch at the upper middle (r0c1) as key."),
        ("#query=r0c1&key=r1c1&direction=from", "maps", 1, ""),
    ],
)
def test_note_on_heads_over_an_image_is_drawn_over_it_and_names_its_token(
    tmp_path: Path, place: str, kind: str, heads: int, said: str
) -> None:
    [chapter] = story_of(image_recording(layers=2), tmp_path, f"{place} Look.")
    assert (chapter.report.kind, len(chapter.report.panels)) == (kind, heads)
    assert chapter.report.remarks == () or chapter.report.remarks[0].startswith(said)
    has_image = {isinstance(panel.columns.canvas, Image) and len(panel.values) == 1 for panel in chapter.report.panels}
    assert has_image == {kind == "text"}
    is_cramped = kind == "text" and heads > MAX_NOTED_PICTURES
    assert not (is_cramped and any(panel.heading.note for panel in chapter.report.panels))


def test_title_slide_of_notes_says_only_what_holds_for_all(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("#head=1.2&query=r0c1 Look.\n#head=0.1&query=r1c1 Here.\n")
    report = build_report(image_recording(layers=2), ReportOptions(look=Look(notes=str(file))))
    assert report.caption == "Attention of a ViT: 2 slides, one for each note."
    assert "Without a place in the image: [CLS] (1 token)." in report.remarks
    assert not any("looks at" in remark for remark in report.remarks)


def test_view_of_a_note_is_kept(recording: Recording, tmp_path: Path) -> None:
    notes = ["#head=1.2&view=arcs Lines.", "#head=1.2&view=text&query=it Text.", "#head=1.2 Map."]
    kinds = [chapter.report.kind for chapter in story_of(recording, tmp_path, *notes)]
    assert kinds == ["arcs", "text", "maps"]


def test_token_of_a_note_is_shown_in_all_heads(recording: Recording, tmp_path: Path) -> None:
    weights = np.concatenate([dense(recording, layer).weights for layer in range(2)])
    to, of = story_of(recording, tmp_path, "#query=it&key=cat To.", "#key=cat&direction=from From.")
    [panel] = to.report.panels
    assert panel.rows.labels == tuple(f"{number // 8}.{number % 8}" for number in range(16))
    np.testing.assert_allclose(panel.values, weights[:, 3])
    assert panel.outline == (0, 1, 16, 1)
    assert panel.title == "What “it” attends to in all heads"
    [panel] = of.report.panels
    np.testing.assert_allclose(panel.values, weights[:, :, 1])
    assert (panel.columns.name, panel.columns.across) == ("queries", True), "whose labels do not overlap"


def test_picture_of_a_token_says_how_many_heads_over_other_tokens_it_leaves_out(tmp_path: Path) -> None:
    tokens = replace(Tokens.numbered(5), labels=LABELS)
    others = replace(Tokens.numbered(5), labels=("other", *LABELS[1:]))
    recording = Recording(
        maps=(random_maps(tokens, heads=2), random_maps(tokens, others, layer=1, heads=3)), model="a test"
    )
    [chapter] = story_of(recording, tmp_path, "#query=it It.")
    [panel] = chapter.report.panels
    assert panel.title == "What “it” attends to in 2 of 5 heads"
    assert len(panel.values) == 2
    assert "Without 3 heads over other tokens." in chapter.report.remarks


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("#head=9.9 No.", "#head=9.9: "),
        ("#head=1.2&query=dog No.", "no query 'dog' among the tokens"),
        ("#head=1.2&query=it&key=dog No.", "no key 'dog' among the tokens"),
    ],
)
def test_note_pinned_to_what_is_not_there_is_refused(
    recording: Recording, tmp_path: Path, line: str, said: str
) -> None:
    with pytest.raises(AttnvizError, match=said):
        story_of(recording, tmp_path, line)


def test_note_of_a_token_that_is_not_shown_is_refused(recording: Recording, tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("#query=it No.")
    options = ReportOptions(look=Look(notes=str(file)), selection=Selection(queries=(0, 2)))
    with pytest.raises(AttnvizError, match="“it” is not among the queries shown; leave"):
        build_report(recording, options)


def test_notes_of_combined_heads_are_refused(recording: Recording, tmp_path: Path) -> None:
    with pytest.raises(AttnvizError, match="pinned to single heads"):
        story_of(recording, tmp_path, "#head=1.2 No.", reduce="mean")
