"""Tables as lines: of every width, with texts of somebody else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waterclock.web.panel import Bar, Panel
from waterclock.web.top.drawing import columns, drawn

PANEL = Panel(
    "Due next", (">in", "due", "topic", "id", ""), [("3 s", "2026-01-01 00:00:00", "mails", "cart-17", Bar(0.25))],
    "The next one of 12 that are pending.", ("due", "topic"),
)  # fmt: skip


def test_a_table_that_is_too_wide_leaves_out_its_columns_in_turn() -> None:
    assert drawn(PANEL, 80)[1:3] == [
        " in  due                  topic  id",
        "3 s  2026-01-01 00:00:00  mails  cart-17  █████░░░░░░░░░░░░░░░",
    ]
    assert drawn(PANEL, 40)[1:3] == [" in  topic  id", "3 s  mails  cart-17  █████░░░░░░░░░░░░░░"]
    assert drawn(PANEL, 18) == ["Due next", " in  id", "3 s  cart-17  █░░░", "The next one of 12", "that are pending."]
    assert drawn(PANEL, 12)[2] == "3 s  cart-1…"


@pytest.mark.parametrize(("share", "bar"), [(0, "░░░░"), (1e-9, "█░░░"), (0.5, "██░░"), (1, "████")])
def test_a_bar_is_empty_only_of_nothing(share: float, bar: str) -> None:
    assert drawn(Panel("x", ("",), [(Bar(share),)]), 4) == ["x", bar]


def test_a_text_of_somebody_else_moves_nothing_beside_it() -> None:
    panel = Panel("x", ("id", "key"), [("a\x1b[2J\r\n\u202eb", "時計"), ("c", "d")])
    assert drawn(panel, 40)[2:] == ["a·[2J···b  時計", "c          d"]


@given(
    st.lists(st.tuples(st.text(max_size=30), st.floats(0, 1), st.text(max_size=90)), max_size=5),
    st.text(max_size=60),
    st.integers(1, 90),
)
def test_no_line_is_wider_than_is_asked_for(rows: list[tuple[str, float, str]], note: str, width: int) -> None:
    panel = Panel("title", ("id", "", ">value"), [(a, Bar(b), c) for a, b, c in rows], note, ("id",))
    assert max(map(columns, drawn(panel, width)), default=0) <= width
    assert bool(drawn(panel, width)) == bool(rows or note)
