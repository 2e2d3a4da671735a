from attnviz.browse.moves.cursor import Screen
from attnviz.browse.moves.keys import press
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import Size, State
from attnviz.maps.recording import Recording


def test_places_are_gone_back_to_and_forward_again_with_their_cursors(recording: Recording) -> None:
    screen = Screen(Session(recording), Size(80, 24), 2**24)
    state = State()
    for key in ("right", "enter", "down", "tab", "right"):
        state = press(screen, state, key)
    assert (state.head, state.query, state.key) == (2, 1, 1)
    back = press(screen, state, "b")
    assert (back.has_open_head, back.head, back.query, back.key) == (True, 1, 1, 0)
    first = press(screen, back, "ctrl+o")
    assert (first.has_open_head, first.head) == (False, 1)
    assert press(screen, first, "b").message == "this is the first place"
    again = press(screen, press(screen, first, "B"), "B")
    assert (again.head, again.query, again.key) == (2, 1, 1)
    assert press(screen, again, "B").message == "this is the last place"


def test_a_new_place_ends_what_was_gone_back_from(recording: Recording) -> None:
    screen = Screen(Session(recording), Size(80, 24), 2**24)
    state = State()
    for key in ("enter", "tab", "b", "a"):
        state = press(screen, state, key)
    assert state.future == ()
    assert [place.has_open_head for place in state.past] == [True, False]
