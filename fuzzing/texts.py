"""Shows texts of any characters in every medium: no control character gets through, and the output can be read."""

from pathlib import Path

from hypothesis import strategies as st

from fuzzing.command_line import attempt
from fuzzing.target import Target

PIECES = (
    *("</script>", "<!--", "]]>", "&amp;", "$x_1$", "[bold]", "=1+1", "|", "`", "\\", '"', "'", "{{ 7 }}", "%s"),
    *("\x1b]0;x\x07", "\x1b[2J", "\x9b31m", "\u202e", "\u2066", "\u2028", "\ufeff", "\x85", "\r", "\t", "\0", "\x7f"),
    *("e\u0301" * 3, "a" + "\u0301" * 50, "👩‍👩‍👧", "🇫🇷", "ﷺ", "東京", "עברית", "\U000e0001", "\U0010ffff", "ſ"),
    *("x" * 300, " " * 30, "\n\n", "a b", "Life is short"),
)
TOKENIZERS = ("word", "char", "byte")
OUTPUTS = ("--json", "x.txt", "x.svg", "x.html", "x.csv", "x.json", "x.png", "x.pptx", "x.pdf", "x.npz", None, None)

texts = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=12)), min_size=1, max_size=5).map(" ".join)
cases = st.tuples(
    texts,
    st.sampled_from(TOKENIZERS),
    st.sampled_from(("show", "show", "show", "heads", "explain")),
    st.sampled_from(OUTPUTS),
    st.one_of(st.none(), texts),
)


def attempt_text(case: tuple[str, str, str, str | None, str | None]) -> None:
    """Shows the text of a file, perhaps with a title, in the terminal or as a file."""
    text, tokenizer, command, output, title = case
    Path("given.txt").write_bytes(text.encode("utf-8", "surrogatepass"))
    arguments = [command, "--file", "given.txt", "--tokenizer", tokenizer]
    if command == "explain":
        output = "x.md" if output in ("x.csv", "x.svg") else None if output == "--json" else output
    if output is not None:
        arguments += [output] if output.startswith("--") else ["-o", output]
    if title is not None and command != "heads":
        arguments += ["--title", title.replace("\0", "")]
    attempt(arguments)


TARGET = Target("texts", cases, attempt_text)
