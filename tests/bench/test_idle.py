"""`waterclock bench idle`: few connections, short silences; no figure is looked at."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from waterclock import cli
from waterclock.bench.timers import connections, idle
from waterclock.errors import WrongAnswer


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"IDLE_S": 0.1, "LATE_S": 0.2, "EVERY_S": 0.03}.items():
        monkeypatch.setattr(idle, name, seconds)


def here(loop: str, name: str, number: int, seconds: float) -> dict[str, Any]:
    return asyncio.run(idle._live(name, number, seconds))


def test_each_way_ends_who_is_silent_and_the_command_shows_all_of_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(idle, "_in_its_own_process", here)
    monkeypatch.setattr(idle, "LOOPS", ("asyncio",))
    assert cli.main(["bench", "idle", "--sizes", "30", "--seconds", "0.1", "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "idle.json").read_text())["figures"]
    assert [one["way"] for one in found] == list(connections.WAYS)
    assert all(one["ended"] >= 3 for one in found[1:])
    assert all(one["messages"] == 27 * 10 for one in found)
    shown = capsys.readouterr().out
    assert [name for name in connections.WAYS if f"\n{name} " not in shown] == []
    assert "uvloop: not measured" in shown


def test_a_connection_that_is_ended_early_never_or_twice_is_a_wrong_answer() -> None:
    load = idle.Load(20)
    load.said_s = [time.monotonic()] * 20
    for number in (0, 5, 5):
        load.ended(number)
    with pytest.raises(
        WrongAnswer, match=r"it: 2 connections were ended before their time, 1 .* not ended, 1 .* twice"
    ):
        load.judge("it")


def test_who_is_silent_is_ended_once_and_in_time() -> None:
    load = idle.Load(20)
    for number in load.silent:
        load.said_s[number] = time.monotonic() - 1
        load.ended(number)
    load.judge("it")


def test_who_was_ended_is_heard_no_more() -> None:
    load, heard = idle.Load(20), list[int]()

    class One:
        def __init__(self, number: int) -> None:
            self.data_received = lambda data: heard.append(number)

    load.ended(load.talkers[0])
    load.say([One(number) for number in range(20)], idle.EVERY_S)
    assert heard == load.talkers[1:]


@pytest.mark.long(seconds=6)
def test_a_way_in_a_process_of_its_own() -> None:
    found = idle._in_its_own_process("asyncio", "waterclock, IdleTimeout", 100, 3.5)
    assert (found["ended"], found["most"]) == (10, 101)
