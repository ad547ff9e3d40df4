"""The journal of the leader's store where its disk refuses: nobody is told before the follower has it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

pytest.importorskip("kio")
pytest.importorskip("crc32c")

from tests.broker.full_disks import full_disk, settle
from tests.broker.replication.pairs import Pair, following, has, pair, until
from waterclock.broker.replication import journal
from waterclock.broker.replication.journal import Journal


@pytest.fixture
def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    monkeypatch.setattr(journal, "RETRY_S", 0.02)
    with pair(tmp_path) as both:
        yield both


def refuse(*arguments: Any) -> NoReturn:
    raise OSError(28, "No space left on device")


def leads_with(both: Pair) -> Journal:
    found = both.one.inside.leading.journal
    assert found is not None
    return found


def probe(both: Pair) -> dict[str, Any]:
    """What the follower has of the room `probe`."""
    return both.two.call(lambda: following(both.two).store.load("probe"))


@pytest.mark.parametrize("step", ["roll", "append", "memo"])
def test_a_journal_that_cannot_begin_anew_is_tried_again_and_nobody_is_told_meanwhile(
    both: Pair, step: str, caplog: pytest.LogCaptureFixture
) -> None:
    led = leads_with(both)
    where, name = {
        "roll": (led.partition, "roll"), "append": (led.partition, "active_for"), "memo": (led.partition.memo, "save"),
    }[step]  # fmt: skip
    answer: list[bool] = []

    def begin_anew_in_vain() -> None:
        setattr(where, name, refuse)
        led.begin_anew()
        both.one.inside.store.put("probe", "k", 1, answer.append)

    with caplog.at_level(logging.WARNING):
        both.one.call(begin_anew_in_vain)
        settle(both.one)
        assert both.one.call(lambda: both.one.inside.store.load("probe")) == {"k": 1}
        assert answer == []
        until(lambda: "cannot begin anew" in caplog.text)
    both.one.call(lambda: delattr(where, name))
    until(lambda: answer == [True])
    assert probe(both) == {"k": 1}
    assert [record for record in caplog.records if record.name == "asyncio"] == []


def test_a_store_that_cannot_say_what_it_has_is_asked_again(both: Pair) -> None:
    led, store, answer = leads_with(both), both.one.inside.store, list[bool]()
    with full_disk(both.one):
        both.one.call(led.begin_anew)
        both.one.call(lambda: store.put("probe", "refused", 1, answer.append))
        settle(both.one)
    assert answer == [False]
    both.one.call(lambda: store.put("probe", "k", 1, answer.append))
    until(lambda: answer == [False, True])
    assert probe(both) == {"k": 1}


def test_what_is_committed_after_a_refusal_reaches_the_follower(both: Pair) -> None:
    with full_disk(both.one), pytest.raises(OSError, match="the disk refused it"):
        both.one.create_topic("refused")
    both.one.create_topic("kept")
    until(lambda: has(both.two, "kept"))
    assert not has(both.two, "refused")
