"""The table of what a reader can choose and do, with its words, keys and conditions: the page and ``browse`` follow it.

Buttons, keys, addresses, help and palette are made from its rows, so that a key does the same in both, and nothing can
be chosen where it means nothing. The page is given the table as ``page.table``; ``browse`` imports it. What a row needs
is a list of facts, and each of the two says from its own state whether a fact holds.
"""

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

Place = Literal["both", "page", "browse"]
Group = Literal[
    "place", "shown", "look", "part", "figure"
]  # what is open, what is shown of it, how that looks, how much a part of it shows, how it is saved

# What a row may need, and what a reader is told who wants it where it does not hold.
FACTS = {
    "all heads": "that is for all heads: Esc goes back to them",
    "one head": "that is for an open head: Enter opens one",
    "several heads": "choose several heads first: Space chooses one",
    "two heads": "a difference is of two heads: Space chooses one",
    "few heads": "two to four heads lie over each other",
    "survey": "that is for a survey",
    "prediction": "no prediction is explained here: attnviz why explains one",
    "routes": "no routes are drawn here",
    "tokens": "a survey has no tokens of its own",
    "two runs": "there is one run here: attnviz compare shows two",
    "contributions": "contributions are not recorded: attnviz show --of contributions records them",
    "token": "choose a token first",
    "directions": "queries and keys are not the same tokens here, or no token is shown",
    "units": "nothing here joins tokens to words",
    "words": "nothing here joins tokens to words",
    "turns": "there are no turns of a chat here",
    "special": "there are no special tokens to hide here",
    "scores": "no scores are kept of what is shown here",
    "weights": "that is of weights alone, not of scores or changes",
    "colours": "nothing is coloured here",
    "several scales": "all that is shown has one scale",
    "pooled": "each cell is one query and one key here",
    "sound": "no sound is shown here",
    "explained": "choose a cell of an open head first",
}


class Value(NamedTuple):
    """A value that can be chosen."""

    word: str  # in the state and in addresses
    label: str
    key: str = ""  # that chooses it; "" if none does
    needs: tuple[str, ...] = ()  # facts, besides those of its choice
    clears: tuple[tuple[str, str], ...] = ()  # choices that it takes back, and their values then
    written: str = ""  # the word in addresses, if it is another one


class Choice(NamedTuple):
    """Values of which one is chosen; the first stands in for a value that means nothing here."""

    name: str
    group: Group
    title: str  # of its buttons
    values: tuple[Value, ...]
    does: str  # what its keys do
    needs: tuple[str, ...] = ()
    key: str = ""  # that goes on to the next value; "" if none does
    switch: str = ""  # the one button that switches between two values; "" for a button each
    address: str = ""  # its name in addresses, if not its own
    where: Place = "both"

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the choice and of its values."""
        return tuple(dict.fromkeys(key for key in (self.key, *(value.key for value in self.values)) if key))


class Action(NamedTuple):
    """Something to do by a key."""

    name: str
    keys: tuple[str, ...]
    names: tuple[str, ...]  # what each key does, as a palette lists it; one name if all keys do one thing
    needs: tuple[str, ...] = ()
    where: Place = "both"

    @property
    def does(self) -> str:
        """What the keys do."""
        return ", ".join(self.names)


# fmt: off
CHOICES = (
    Choice("list", "place", "All heads",
           (Value("maps", "Maps", "1"), Value("numbers", "Numbers", "2"), Value("lens", "One token", "3", ("tokens",)),
            Value("points", "Points", "3", ("survey",)), Value("why", "Why", "4", ("prediction",))),
           "all heads: maps, numbers, one token; of a survey points; why a prediction", ("all heads",), address="view",
           where="page"),
    Choice("view", "place", "View",
           (Value("matrix", "Matrix", "1"), Value("arcs", "Arcs", "2"), Value("text", "Text", "3"),
            Value("table", "Table", "4")),
           "a head: matrix, arcs, text, table", ("one head",), where="page"),
    Choice("together", "place", "The chosen heads together",
           (Value("side", "Side by side", "="), Value("overlay", "Overlaid", needs=("few heads",)),
            Value("difference", "Difference", "d", ("two heads",)), Value("mean", "Mean", "m"),
            Value("max", "Max", "M"), Value("rollout", "Rollout", "R")),
           "chosen heads: side by side, difference, mean, max, rollout", ("several heads",)),
    Choice("direction", "shown", "Direction of attention", (Value("to", "→ looks at"), Value("from", "← seen by")),
           "what a token looks at, or what looks at it", ("directions",), "r"),
    Choice("by", "shown", "Rows and columns",
           (Value("tokens", "Tokens"), Value("words", "Words", "", ("words",), (("scores", "hidden"),)),
            Value("turns", "Turns", "", ("turns",), (("scores", "hidden"),))),  # words and turns have no score
           "join tokens into words, or turns of a chat", ("units",), "w", "Words"),
    Choice("special", "shown", "Special tokens", (Value("shown", "Shown"), Value("hidden", "Hidden")),
           "hide special tokens", ("special",), "t", "No special"),
    Choice("scores", "shown", "Weights or scores",
           (Value("hidden", "Weights"), Value("shown", "Scores", clears=(("by", "tokens"),))),
           "show scores or weights", ("scores",), "v", "Scores"),
    Choice("side", "shown", "Which run is shown", (Value("A", "A"), Value("B", "B"), Value("change", "B − A")),
           "runs: A, B, their difference", ("two runs",), "d"),
    Choice("of", "shown", "What cells are",
           (Value("weight", "Weights"), Value("contribution", "Contributions", written="contributions")),
           "show contributions or weights", ("contributions",)),
    Choice("steps", "look", "Steps of the colours",
           (Value("sqrt", "√"), Value("linear", "Linear"), Value("log", "Log"),
            Value("lift", "Lift", needs=("weights",))),
           "steps of the colours", ("colours",), "l", address="scale"),
    Choice("limits", "look", "Limits of the colours", (Value("shared", "Shared"), Value("head", "Per head")),
           "one colour scale, or one per head", ("several scales",), "c"),
    Choice("pool", "look", "What a pixel shows", (Value("mean", "Mean"), Value("max", "Largest")),
           "pool by mean or maximum", ("pooled",), "p"),
    Choice("share", "part", "Share of the logit that a route carries at least",
           (Value("1", "1%"), Value("2", "2%"), Value("5", "5%"), Value("10", "10%")),
           "least share of the logit of a route", ("routes",), where="page"),
    Choice("size", "figure", "Size of a saved figure",
           (Value("", "as here"), Value("column", "column"), Value("page", "page"), Value("slide", "slide")),
           "size of a saved figure", where="page"),
)
ACTIONS = (
    Action("move", ("ArrowLeft", "ArrowUp", "ArrowDown", "ArrowRight"), ("move among heads, cells or tokens",)),
    Action("keep seconds", ("Shift+ArrowLeft", "Shift+ArrowRight"), ("keep seconds of a sound",), ("sound",), "page"),
    Action("move far", tuple(f"Shift+Arrow{way}" for way in ("Left", "Up", "Down", "Right")), ("move by ten cells",)),
    Action("page", ("PageUp", "PageDown"), ("a screenful up", "a screenful down"), where="browse"),
    Action("end", ("Home", "End"), ("go to the first", "go to the last"), where="browse"),
    Action("open", ("Enter",), ("open the head; keep the cell or token",)),
    Action("back", ("Escape",), ("let go of a token or of chosen heads, back to all heads",)),
    Action("choose", ("Space",), ("choose the head, to show several",)),
    Action("step", ("[", "]"), ("previous head", "next head")),
    Action("history", ("b", "B"), ("previous place", "next place"), where="browse"),
    Action("find", ("/",), ("find a token, head or metric",)),
    Action("find key", ("\\",), ("find a key",), where="browse"),
    Action("find again", ("n", "N"), ("find the next", "find the previous")),
    Action("filter", ("f",), ("filter heads: sink>0.5",)),
    Action("sort", ("o", "O"), ("sort by the next metric", "by the previous"), ("all heads",)),
    Action("reverse", ("r",), ("reverse the order of heads",), ("all heads",)),  # where there are no directions
    Action("lens", ("a",), ("the chosen token in all heads",), ("token",)),
    Action("strongest", ("g",), ("go to the next strongest key",), ("one head",), "browse"),
    Action("why", ("x",), ("why this weight: q·k",), ("explained",)),
    Action("zoom", ("+", "-", "0"), ("zoom in", "zoom out", "whole map")),
    Action("written", (".", ","), ("next written token", "previous one"), where="browse"),
    Action("play", ("P",), ("play token by token",), where="browse"),
    Action("theme", ("h",), ("theme: terminal, light, dark",), where="browse"),
    Action("name", ("e",), ("name the head",), where="browse"),
    Action("copy", ("y",), ("copy a link or a command",)),
    Action("save", ("s",), ("save a figure",)),
    Action("actions", (":",), ("list all actions",)),
    Action("help", ("?",), ("show these keys",)),
    Action("quit", ("q",), ("quit",), where="browse"),
)
# fmt: on
KEY_NAMES = {
    "ArrowLeft": "←",
    "ArrowUp": "↑",
    "ArrowDown": "↓",
    "ArrowRight": "→",
    "Escape": "Esc",
    "PageUp": "PgUp",
    "PageDown": "PgDn",
    "-": "−",
}  # fmt: skip


def rows_of(place: Literal["page", "browse"]) -> Iterator[Choice | Action]:
    """Returns the rows that the page or ``browse`` has, in the order in which a key's rows are tried."""
    return (row for row in (*CHOICES, *ACTIONS) if row.where in ("both", place))


def key_table(place: Literal["page", "browse"]) -> list[tuple[str, str]]:
    """Returns the keys of each row that has some, as a reader knows them, and what they do."""
    return [(key_names(row.keys), row.does) for row in rows_of(place) if row.keys]


def key_names(keys: tuple[str, ...]) -> str:
    """Returns keys as a list of keys names them."""
    shift = "Shift " if keys[0].startswith("Shift+") else ""
    return shift + " ".join(KEY_NAMES.get(key.removeprefix("Shift+"), key.removeprefix("Shift+")) for key in keys)


def page_table() -> dict[str, Any]:
    """Returns the table as the page is given it: facts, choices, actions, and names of keys."""
    choices, actions = list[dict[str, Any]](), list[dict[str, Any]]()
    for row in rows_of("page"):
        if isinstance(row, Choice):
            choices.append(row._asdict() | {"values": [value._asdict() for value in row.values]})
        else:
            actions.append(row._asdict() | {"does": row.does})
    return {"facts": FACTS, "choices": choices, "actions": actions, "keyNames": KEY_NAMES}
