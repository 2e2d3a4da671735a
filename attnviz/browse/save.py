"""Saves the inspector's screen as a picture, as a report that the usual renderers draw."""

from dataclasses import replace
from pathlib import Path

from attnviz.browse.actions.cursor import Screen
from attnviz.browse.actions.layout import lens_heads, open_map_pane, tiles
from attnviz.browse.process.application import refuse_picture, save_report
from attnviz.browse.session.blocks import TokenRow
from attnviz.browse.session.state import State, View
from attnviz.browse.view.lens import lay_out_lens
from attnviz.render.formats import FORMATS
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import Medium
from attnviz.report.picture.panels import Axis, Heading, Panel
from attnviz.report.picture.report import DrawnReport
from attnviz.report.words.captions import masked_remark, model_name, recording_remarks, text_title
from attnviz.text.named_groups import Mark, singular

JOINED = "Tokens of a {} are joined: weights are summed over its keys and averaged over its queries."
MAX_NAMED_ROWS = 24  # of a picture in which each row has its head's name; with more, the first of each layer has it


def save_picture(screen: Screen, state: State, path: Path, look: Look) -> None:
    """Writes what the screen shows to a new file, with as many cells as the format can show."""
    refuse_picture(path)
    save_report(picture(screen, state, FORMATS[path.suffix.lower()].medium(look), look), path)


def picture(screen: Screen, state: State, medium: Medium, look: Look) -> DrawnReport:
    """Returns a report of what the screen shows: the open heads at their zoom, the lens, or all heads on the screen.

    All heads share one colour scale, unless the view gives each its own.
    """
    recording, session = screen.session.recording, screen.session
    state = replace(state, view=session.view_of(state.head, state.view))
    if state.has_open_head:
        panels = tuple(_panel(screen, state, head, medium.max_cells) for head in (state.head, *state.heads_beside))
    elif state.lens:
        panels = (_lens_panel(screen, state),)
    else:
        heads = tiles(session, state, screen.size).on_screen(state.top)
        panels = tuple(_panel(screen, state, head, medium.max_cells) for head in heads)
    if not state.view.own_scale:
        low, high = min(panel.scale.low for panel in panels), max(panel.scale.high for panel in panels)
        scale = replace(panels[0].scale, low=low, high=high)
        panels = tuple(replace(panel, scale=scale) for panel in panels)
    return DrawnReport(
        kind="maps",
        title=look.title or text_title(recording),
        panels=panels,
        caption=_caption(screen, state, panels),
        remarks=(*_remarks(panels, state.view, session.unit_name, medium.masked_look), *recording_remarks(recording)),
        look=look,
    )


def _panel(screen: Screen, state: State, head: int, max_cells: int) -> Panel:
    """Returns the exact panel of a head: the part on the screen if a head is open, else the whole map."""
    session = screen.session
    rows, columns = (slice(0, len(units)) for units in session.units(head, state.view))
    if state.has_open_head:
        pane = open_map_pane(session, state, screen.size, screen.colors)
        rows, columns = pane.queries.span, pane.keys.span
    return session.panel(head, state.view, rows, columns, max_cells, max_cells, exact=True)


def _lens_panel(screen: Screen, state: State) -> Panel:
    """Returns a panel with the row of every head of the lens; first computes and caches the rows that are missing."""
    session, view = screen.session, state.view
    while session.token_rows.compute(lens_heads(session, state), view, state.token, state.direction):
        pass
    lens = lay_out_lens(screen, state)
    block = TokenRow.stacked([row for head in lens.heads if (row := lens.rows.get(head)) is not None])
    names = tuple(session.names[head] for head in lens.heads)
    labels = lens.units[1].labels
    first_names: tuple[Mark, ...] = ()  # of each layer, where not every row has space for its name
    if len(lens.heads) > MAX_NAMED_ROWS and lens.heads == sorted(lens.heads):
        first_heads = {group[0] for group in session.ranking.by_call(lens.heads)}
        first_names = tuple((row, names[row]) for row, head in enumerate(lens.heads) if head in first_heads)
    return Panel(
        heading=Heading(lens.title),
        values=block.values,
        visible=block.visible,
        rows=Axis("heads", names, tuple(range(len(names) + 1)), first_names, dense=True),
        columns=Axis(
            "keys" if state.direction == "to" else "queries", labels, tuple(range(len(labels) + 1)), across=True
        ),
        quantity=session.quantity(view),
        scale=lens.scale,
    )


def _remarks(panels: tuple[Panel, ...], view: View, unit_name: str, masked_look: str) -> tuple[str, ...]:
    """Returns sentences on pooling, joined words, hidden tokens, special colours and masked cells, if there are any."""
    is_pooled = any(axis.pooled for panel in panels for axis in (panel.rows, panel.columns))
    shows_mean = view.mean or view.scores or view.difference
    sentences = (
        (is_pooled, f"Pooled: each cell is the {'mean' if shows_mean else 'maximum'} of its block."),
        (view.words, JOINED.format(singular(unit_name))),
        (not view.special, "Special tokens are left out, so a row need not sum to one."),
        (panels[0].scale.steps == "log", "Colours are logarithmic."),
        (view.own_scale and len(panels) > 1, "Each head has a colour scale of its own."),
        (any(not panel.visible.all() for panel in panels), masked_remark(masked_look)),
    )
    return tuple(sentence for applies, sentence in sentences if applies)


def _caption(screen: Screen, state: State, panels: tuple[Panel, ...]) -> str:
    """Returns a sentence on the quantity, the heads and the model of the picture; for the lens, on token and model."""
    session = screen.session
    if state.lens and not state.has_open_head:
        return f"{panels[0].title} in {model_name(session.recording)}: heads (rows) over tokens (columns)."
    subject = "1 head" if len(panels) == 1 else f"{len(panels)} heads"
    if state.has_open_head and len(panels) == 1:
        subject = session.title(state.head)
    quantity = "Scores" if state.view.scores else "Attention"
    if state.view.difference:
        quantity = "Change of attention"
    return f"{quantity} of {subject} in {model_name(session.recording)}, queries (rows) over keys (columns)."
