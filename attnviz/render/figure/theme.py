"""Holds the light and dark colours of a figure apart from its colormap."""

THEME_COLORS = {
    "light": {
        "paper": "#ffffff",
        "ink": "#1a1a1a",
        "faint": "#5c5c5c",
        "absent": "#f4f4f4",
        "hatch": "#c9c9c9",
        "line": "#1f5fbf",
        "mark": "#d1480f",
    },
    "dark": {
        "paper": "#14151a",
        "ink": "#f2f2f2",
        "faint": "#a8a8b0",
        "absent": "#1d1f26",
        "hatch": "#4a4d58",
        "line": "#7fb2ff",
        "mark": "#ff9d5c",
    },
}
Theme = dict[str, str]


def rgb(color: str) -> tuple[int, int, int]:
    """Returns the red, green and blue of ``#rrggbb``, each from 0 to 255."""
    red, green, blue = bytes.fromhex(color.removeprefix("#"))
    return red, green, blue
