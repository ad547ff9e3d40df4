"""What a person sees of a run's end: one event is one, and of a few events no speed is said."""

from __future__ import annotations

import pytest

pytest.importorskip("rich")

from waterclock.pipelines.progress import Bar, summary_table
from waterclock.streaming.statistics import Summary


@pytest.mark.parametrize(
    ("batches", "events", "seconds", "did", "speed"),
    [
        (1, 1, 20.0, "1 event in 1 batch, 20.0 s", None),
        (0, 0, 0.0, "0 events in 0 batches, 0.0 s", None),
        (2, 1_200, 1.0, "1,200 events in 2 batches, 1.0 s", "1,200 events/s, start-up included"),
    ],
)
def test_the_end_of_a_run_says_one_of_one_thing_and_no_speed_of_nothing(
    batches: int, events: int, seconds: float, did: str, speed: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    summary_table(Summary("orders", "orders.db", batches, events, seconds, {"events": events}))
    rows = [[cell.strip() for cell in line.strip("│ ").split("│")] for line in capsys.readouterr().err.splitlines()]
    said = {row[0]: row[1] for row in rows if len(row) == 2}
    assert (said["this run"], said.get("speed")) == (did, speed)


def test_a_run_that_has_nothing_to_read_does_not_end_as_one_that_starts(capsys: pytest.CaptureFixture[str]) -> None:
    with Bar("orders"):
        pass
    told = capsys.readouterr().err
    assert "nothing new to read" in told
    assert "starting Spark" not in told
