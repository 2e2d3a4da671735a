"""Elements as values on the screen: what is alike stays, and only what differs is taken over."""

import pytest

from tests.render.page.conftest import Opener
from tests.render.page.examples import report_of, sentence

pytestmark = pytest.mark.slow

TRIALS = {
    "text and attributes are taken over": (
        """show(h("b", { title: "one", hidden: true }, "old"), "text");
        return show(h("b", { title: "two" }, "new"), 5 > 4 && "other");""",
        '<b title="two">new</b>other',
    ),
    "an element that is alike stays, with what was typed into it": (
        """show(h("i", {}), h("input", { class: "a" }));
        const field = parent.lastChild;
        field.value = "typed";
        show(h("b", {}), h("input", { class: "b" }));
        return [field === parent.lastChild, field.value, field.className, parent.firstChild.tagName];""",
        [True, "typed", "b", "B"],
    ),
    "elements are found again by their keys": (
        """show(h("i", { key: 1 }), h("i", { key: 2 }), h("i", { key: 3 }));
        const before = [...parent.children];
        show(h("i", { key: 3 }), h("i", { key: 4 }), h("i", { key: 1 }));
        return [...parent.children].map((child) => before.indexOf(child));""",
        [2, -1, 0],
    ),
    "a listener is one at a time": (
        """const heard = [];
        show(h("b", { onclick: () => heard.push("first") }));
        show(h("b", { onclick: () => heard.push("second") }));
        parent.firstChild.click();
        show(h("b", {}));
        parent.firstChild.click();
        return heard;""",
        ["second"],
    ),
    "a list has its value after its options": (
        """show(h("select", { value: "b" }, h("option", { value: "a" }), h("option", { value: "b" })));
        return parent.firstChild.value;""",
        "b",
    ),
    "elements within a drawing are of its namespace, those in a frame for pages are not": (
        """show(h("svg", {}, h("a", {}, h("foreignObject", {}, h("a", {})))));
        return [...parent.querySelectorAll("*")].map((node) => node.namespaceURI.split("/").pop());""",
        ["svg", "svg", "svg", "xhtml"],
    ),
    "an element is painted when what it shows changed": (
        """const painted = [];
        for (const name of ["a", "a", "b"]) show(h("canvas", { painted: name, paint: () => painted.push(name) }));
        return painted;""",
        ["a", "b"],
    ),
    "a style is allowed by the policy, and an element that somebody else keeps stays as it is": (
        """const kept = document.createElement("canvas");
        show(h("b", { style: "color: rgb(1, 2, 3)" }), kept);
        show(h("b", { style: "color: rgb(3, 2, 1)" }), kept);
        return [getComputedStyle(parent.firstChild).color, parent.lastChild === kept];""",
        ["rgb(3, 2, 1)", True],
    ),
}


def test_only_what_differs_is_taken_over(show: Opener) -> None:
    opened = show(report_of(sentence()))
    found = {}
    for name, (trial, _) in TRIALS.items():
        found[name] = opened.evaluate(f"""(() => {{
            const parent = document.body.appendChild(document.createElement("div"));
            const show = (...children) => {{
                patch(parent, h("p", {{}}, ...children).children);
                return parent.innerHTML;
            }};
            try {{ return (() => {{ {trial} }})(); }} finally {{ parent.remove(); }}
        }})()""")
    assert found == {name: wanted for name, (_, wanted) in TRIALS.items()}
