"""The page of a chat: it opens as the conversation, whose turns are shaded and lead to tokens and heads."""

from dataclasses import replace

import numpy as np
import pytest

from attnviz.maps.recording import Recording
from attnviz.media.image import Image
from attnviz.media.text import Text
from attnviz.text.groups import Groups
from attnviz.text.named_groups import TURNS
from tests.conftest import dense, random_maps
from tests.render.page.conftest import Opened, Opener
from tests.render.page.examples import labelled, report_of

TURN_TEXTS = (
    "Be brief.",
    "How high is it?\n```py\nx = 1\n```\nאיזה גובה",
    "It is 330 m high </script>",
    "And in 1889?",
)
LABELS = ("1 system", "2 user", "3 assistant", "4 user")
SIGN = "<|im_start|>"
LAST, ASSISTANT = 4, 3  # turns, after the signs of the template


def chat(layers: int = 2, heads: int = 3) -> Recording:
    """A causal chat of four turns, each after a sign of the template; a token is a word or a sign with its space."""
    text, labels, places, turns = "", list[str](), list[tuple[int, int]](), list[int]()
    for number, turn in enumerate(TURN_TEXTS):
        for piece, group in ((SIGN, -1), *((word, number) for word in turn.split(" "))):
            start = len(text)
            text += piece + ("\n" if piece == SIGN or piece == turn.split(" ")[-1] else " ")
            labels.append(piece)
            places.append((start, start + len(piece)))
            turns.append(group)
    tokens = replace(
        labelled(tuple(labels)),
        special=np.array(turns) < 0,
        groups={TURNS: Groups(np.array(turns), LABELS)},
        media=(Text(text),),
        places=np.array(places),
        medium=np.zeros(len(labels), dtype=np.int64),
    )
    maps = [random_maps(tokens, layer=layer, heads=heads, causal=True, seed=layer) for layer in range(layers)]
    return Recording(maps=tuple(maps), model="a test")


CHAT = chat()
TURN_OF_TOKEN = CHAT.maps[0].query_tokens.groups[TURNS].numbers + 1  # 0 is what belongs to no turn


def shares(layer: int, head: int, turn: int) -> np.ndarray:
    """Returns how much of a turn's weight is on each: sums over keys, means over queries."""
    maps = dense(CHAT, layer)
    weights = np.where(maps.visible, maps.weights[head], 0)[turn == TURN_OF_TOKEN].mean(axis=0)
    return np.bincount(TURN_OF_TOKEN, weights)


def mean_shares(turn: int) -> np.ndarray:
    return np.asarray(np.mean([shares(layer, head, turn) for layer in range(2) for head in range(3)], axis=0))


def written_shares(opened: Opened) -> list[str]:
    return [str(text) for text in opened.page.locator(".turn-share").all_inner_texts()]


@pytest.fixture(scope="module")
def opened(show_to_all: Opener) -> Opened:
    return show_to_all(report_of(CHAT))


def test_first_sentence_is_of_turns_while_these_are_shown(opened: Opened) -> None:
    begin(opened)
    means, earlier = mean_shares(LAST), [1, 2, 3]
    first, second = sorted(earlier, key=lambda turn: -means[turn])[:2]
    heads = [
        (shares(layer, head, LAST)[turn], f"{layer}.{head}", turn)
        for layer in range(2)
        for head in range(3)
        for turn in earlier
    ]
    most, name, at = max(heads)
    names = ("marks", *LABELS)
    assert opened.text(".answer:visible") == (
        f"“4 user” looks {means[LAST]:.0%} at itself, {means[first]:.0%} at “{names[first]}”, "
        f"{means[second]:.0%} at “{names[second]}” on average; head {name} looks {most:.0%} at “{names[at]}”."
    )
    opened.page.click(".answer:visible a >> nth=-1")
    opened.until(f"page.heads[state.head]?.name === '{name}' && state.pin.query === {LAST} && state.pin.key === {at}")
    begin(opened)
    opened.press("w")
    opened.until("state.by === 'tokens'")
    assert opened.page.locator(".answer.of-turns:visible").count() == 0


def begin(opened: Opened) -> None:
    opened.evaluate("location.hash = ''")
    opened.page.mouse.move(2, 2)
    opened.until("state.by === 'turns' && state.list === 'maps' && !state.pin && scene.asked?.whole")
    opened.settle()


def test_a_chat_opens_as_the_conversation_shaded_by_what_its_last_turn_looks_at(opened: Opened) -> None:
    begin(opened)
    assert opened.page.locator(".turn-name").all_inner_texts() == ["marks", *LABELS]
    assert written_shares(opened) == [f"{share:.0%}" for share in mean_shares(LAST)]
    shades = opened.evaluate(
        "[...document.querySelectorAll('.turn')].map((turn) => parseFloat(turn.style.getPropertyValue('--part')))"
    )
    assert np.argsort(shades).tolist() == np.argsort(mean_shares(LAST)).tolist()
    assert "what “4 user” attends to" in opened.text("#text > .note")
    assert opened.page.locator(".turn.looks .turn-name").all_inner_texts() == ["4 user"]


def test_text_of_a_turn_is_as_it_was_written_and_code_stands_apart(opened: Opened) -> None:
    begin(opened)
    turn = opened.page.locator(".turn").nth(2)
    assert turn.locator(".turn-text > *").all_inner_texts() == ["How high is it?", "x = 1", "איזה גובה"]
    assert turn.locator("pre").count() == 1
    assert opened.page.locator(".turn").nth(3).locator("p").inner_text() == TURN_TEXTS[2]


def test_a_click_on_a_turn_asks_it_and_names_the_heads_that_look_most(opened: Opened) -> None:
    begin(opened)
    opened.page.locator(".turn-name", has_text="3 assistant").click()
    opened.until("state.list === 'lens' && scene.shown?.whole")
    opened.settle()
    mean = mean_shares(ASSISTANT)
    assert written_shares(opened) == [f"{share:.0%}" for share in mean[: ASSISTANT + 1]]  # later turns are masked
    assert opened.page.locator(".turn.absent .turn-name").all_inner_texts() == ["4 user"]
    assert opened.page.locator(".turn-name[aria-pressed=true]").all_inner_texts() == ["3 assistant"]
    strongest = int(mean.argmax())
    on_strongest = {
        f"{layer}.{head}": shares(layer, head, ASSISTANT)[strongest] for layer in range(2) for head in range(3)
    }
    named = opened.page.locator("#text .note .link").all_inner_texts()
    assert named == sorted(on_strongest, key=lambda name: -on_strongest[name])[:3]
    opened.page.locator("#text .note .link").first.click()
    opened.until("scene.current?.stage && state.head !== null")
    assert opened.evaluate("page.heads[state.head].name") == named[0]
    values = np.array(opened.evaluate("[...scene.shown.values]")).reshape(5, 5)
    layer, head = map(int, named[0].split("."))
    np.testing.assert_allclose(np.maximum(values[ASSISTANT], 0), shares(layer, head, ASSISTANT), rtol=1e-5, atol=1e-7)


def test_heads_are_named_that_look_at_a_turn_and_not_at_the_signs_of_the_template(show: Opener) -> None:
    on_signs = np.where((TURN_OF_TOKEN == LAST)[:, None] & (TURN_OF_TOKEN == 0), 2, 1)  # too little to be left out
    maps = [dense(CHAT, layer) for layer in range(2)]
    weights = [np.where(layer.visible, layer.weights * on_signs, 0) for layer in maps]
    layers = [
        replace(layer, weights=(part / part.sum(-1, keepdims=True)).astype(np.float32))
        for layer, part in zip(maps, weights, strict=True)
    ]
    opened = show(report_of(replace(CHAT, maps=tuple(layers))))
    begin(opened)
    given = [int(share.rstrip("%")) for share in written_shares(opened)]
    assert given[0] == max(given)
    assert "look most at “2 user”" in opened.text("#text > .note")


def test_a_click_on_a_word_goes_to_its_token_and_a_key_goes_back_to_its_turn(opened: Opened) -> None:
    begin(opened)
    turn = opened.page.locator(".turn").nth(ASSISTANT)
    turn.locator("button").first.click()
    opened.until("scene.shown?.whole && state.pin?.query === 3")
    opened.settle()
    opened.evaluate("""window.place = (() => {
        const range = document.createRange();
        const [words] = document.querySelectorAll('.turn')[3].querySelector('p').childNodes;
        range.setStart(words, 7);
        range.setEnd(words, 8);
        const { x, y, width, height } = range.getBoundingClientRect();
        return [x + width / 3, y + height / 2];
    })()""")
    opened.page.mouse.click(*opened.evaluate("window.place"))  # into "330"
    opened.until("state.by === 'tokens' && state.pin && scene.shown?.whole")
    token = opened.evaluate("state.pin.query")
    assert CHAT.maps[0].query_tokens.labels[token] == "330"
    assert opened.evaluate("location.hash") == f"#query=@{token}&by=tokens"
    opened.press("w")
    opened.until("state.by === 'turns' && scene.shown?.whole")
    assert opened.evaluate("[state.pin.query, location.hash]") == [ASSISTANT, "#query=3+assistant"]


def test_a_link_to_a_token_is_followed_to_the_tokens(opened: Opened) -> None:
    begin(opened)
    opened.evaluate("location.hash = 'head=1.2&query=330'")
    opened.until("state.head !== null && scene.current?.stage && state.by === 'tokens'")
    assert opened.evaluate("[page.texts[0].labels[state.pin.query], state.unknown]") == ["330", ""]


@pytest.mark.parametrize("width", [1280, 390])
def test_a_conversation_fits_the_window_and_folds_a_long_turn(show: Opener, width: int) -> None:
    tokens = CHAT.maps[0].query_tokens
    long = "\n".join(f"Rule {number}: be brief." for number in range(300))
    text = tokens.text.replace("Be brief.", long)
    grown = len(long) - len("Be brief.")
    places = tokens.places + np.where(tokens.places > len(SIGN) + 4, grown, 0)
    changed = replace(tokens, media=(Text(text),), places=places)
    maps = tuple(replace(each, query_tokens=changed, key_tokens=changed) for each in CHAT.maps)
    opened = show(report_of(Recording(maps=maps, model="a test")), viewport={"width": width, "height": 850})
    opened.until("scene.asked?.whole")
    first = opened.page.locator(".turn").nth(1)
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    folded = first.bounding_box()["height"]
    first.locator(".turn-more").click()
    assert first.bounding_box()["height"] > 10 * folded
    first.locator(".turn-more").click()
    assert first.bounding_box()["height"] == folded


def test_a_saved_conversation_has_turns_with_their_shares(opened: Opened) -> None:
    begin(opened)
    opened.evaluate("location.hash = 'head=1.2&view=text'")
    opened.until("state.view === 'text' && scene.current")
    opened.settle()
    content = opened.evaluate("svgOfView()")
    last = [f"{share:.0%}" for share in shares(1, 2, LAST)]
    assert all(f">{label}</text>" in content for label in LABELS)
    assert all(f">{share}</text>" in content for share in last)


def test_a_chat_with_a_picture_opens_as_the_picture_and_turns_are_one_click_away(show: Opener) -> None:
    tokens = CHAT.maps[0].query_tokens
    places = np.pad(tokens.places, ((0, 0), (0, 2)))
    patches = np.flatnonzero(TURN_OF_TOKEN == 1)
    places[patches] = [(0, 0, 8, 16), (8, 0, 16, 16)]
    seen = replace(
        tokens,
        ids=np.where(TURN_OF_TOKEN == 1, -1, np.arange(len(tokens))),
        groups={TURNS: Groups(TURN_OF_TOKEN - 1, ("1 picture", *LABELS[1:]))},
        media=(*tokens.media, Image(np.zeros((16, 16, 3), dtype=np.uint8), 16, 16, "tower.png")),
        places=places,
        medium=(TURN_OF_TOKEN == 1).astype(np.int64),
    )
    maps = tuple(replace(dense(CHAT, layer), query_tokens=seen, key_tokens=seen) for layer in range(2))
    opened = show(report_of(replace(CHAT, maps=maps)))
    opened.until("state.by === 'tokens' && state.list === 'lens' && scene.shown?.whole")
    assert opened.page.locator(".patches-image:visible").count() == 1
    opened.page.get_by_role("button", name="Turns", exact=True).click()
    opened.until("state.by === 'turns' && scene.shown?.whole")
    assert opened.page.locator(".turn img").get_attribute("alt") == "tower.png"
    assert opened.page.locator(".turn", has=opened.page.locator("img")).inner_text().startswith("1 picture")
    assert written_shares(opened) == [f"{share:.0%}" for share in mean_shares(LAST)]
    opened.evaluate("location.hash = '#query=4+user&key=1+picture'")  # which are no tokens
    opened.until(f"state.by === 'turns' && state.pin?.query === {LAST} && state.pin.key === 1")
    opened.evaluate("location.hash = ''")
    opened.until("state.by === 'tokens' && !state.pin")
