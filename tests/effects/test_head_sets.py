"""Sets of heads to ablate."""

import pytest

from attnviz.base.errors import AttnvizError
from attnviz.effects import head_sets
from attnviz.effects.head_sets import chosen_sets
from attnviz.text.head_name import KnownHead

HEADS = [KnownHead(layer, head) for layer in (0, 1) for head in (0, 1)]


def test_pairs_up_to_the_limit_are_run_and_more_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_sets, "MAX_PAIRS", 6)
    assert len(chosen_sets(HEADS, None, None, True)) == 4 + 6
    monkeypatch.setattr(head_sets, "MAX_PAIRS", 5)
    with pytest.raises(AttnvizError, match="4 heads make 6 pairs, and at most 5 are run"):
        chosen_sets(HEADS, None, None, True)


def test_an_empty_list_of_heads_is_refused() -> None:
    with pytest.raises(AttnvizError, match="no heads to remove; give at least one"):
        chosen_sets(HEADS, [], None, False)
