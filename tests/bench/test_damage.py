"""`waterclock bench damage`: files are damaged as it is said, and what became of them is judged by what is there."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.bench.conftest import quiet
from waterclock.bench.damage import campaign, harm
from waterclock.bench.damage.clients import MANY, TAKEN, value, view, written_at_once
from waterclock.bench.damage.contenders import OURS

LOG = Path("topics/plain-0.0123456789abcdef/00000000000000000400.log")
WHOLE = {"right": MANY, "wrong": 0, "errors": [], "taken": TAKEN, "stuck": False}
LESS = {**WHOLE, "right": MANY - 1}
GONE = "Broker: UNKNOWN_TOPIC_OR_PART"


@pytest.mark.parametrize("what", harm.EVERY)
def test_a_file_is_damaged_where_something_is_written(tmp_path: Path, what: str) -> None:
    written = bytes(range(1, 256)) * 8
    for seed in range(30):
        path = tmp_path / "reserved.log"
        path.write_bytes(written + bytes(5000))
        assert harm.harm(path, what, random.Random(seed))
        left = path.read_bytes() if path.exists() else b""
        assert left[: len(written)] != written
        if what == harm.FLIP:
            assert sum((one ^ two).bit_count() for one, two in zip(left, written, strict=False)) == 1


@pytest.mark.parametrize("what", [what for what in harm.EVERY if what != harm.GONE])
def test_what_would_change_nothing_is_not_tried(tmp_path: Path, what: str) -> None:
    (path := tmp_path / "empty").write_bytes(bytes(100))
    assert harm.harm(path, what, random.Random(1)) == ""


def test_both_ends_of_the_log_are_damaged_and_one_file_of_each_other_kind(tmp_path: Path) -> None:
    names = [LOG.with_name(f"{number:020}.log") for number in (0, 400, 800)]
    names += [
        LOG.with_name("00000000000000000000.index"),
        LOG.with_name("00000000000000000400.index"),
        Path("store.log"),
    ]
    for name in [*names, Path("lock")]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * (1 + ("400.index" in name.name)))
    found = [(role, path.name) for role, path in harm.chosen(tmp_path, OURS.roles)]
    assert found[:2] == [(harm.OLDEST, f"{0:020}.log"), (harm.NEWEST, f"{800:020}.log")]
    assert sorted(found[2:]) == [(harm.INDEX, f"{400:020}.index"), (harm.SERVER, "store.log")]


def test_a_reader_knows_what_must_be_there() -> None:
    assert [number for numbers in written_at_once() for number in numbers] == list(range(MANY))
    found = [(0, value(0)), (1, value(2)), (1, value(1)), (1, value(1)), (MANY, value(3))]
    assert view(found, [], 0, False) == {"right": 2, "wrong": 3, "errors": [], "taken": 0, "stuck": False}


@pytest.mark.parametrize(
    ("seen", "words", "outcome"),
    [
        (WHOLE, [], campaign.ALL),
        (LESS, [], campaign.SILENT),
        (LESS, [f"ERROR {LOG.name} lost offset 7"], campaign.SAID),
        (LESS, ["WARN something else"], campaign.SILENT),
        ({**LESS, "errors": ["Broker: Invalid message"]}, [], campaign.SAID),
        ({**LESS, "right": 0, "errors": [GONE]}, [], campaign.SILENT),
        ({**WHOLE, "taken": -1}, [], campaign.POSITION),
        ({**WHOLE, "wrong": 1}, [f"ERROR {LOG.name}"], campaign.WRONG),
        ({**LESS, "stuck": True}, [], campaign.HUNG),
        ({**LESS, "died": ["Assertion failed"]}, [], campaign.WRONG),
        ({"no start": "ended"}, [f"{LOG.name} is damaged"], campaign.REFUSED),
        ({"no start": "ended"}, [], campaign.MUTE),
        ({"no start": "hung"}, [], campaign.HUNG),
    ],
)
def test_what_became_of_a_file_is_judged_by_the_reader_and_by_words(
    seen: dict[str, Any], words: list[str], outcome: str
) -> None:
    assert campaign.verdict(seen, words, LOG) == outcome


def test_the_table_counts_what_was_bad_said_and_all_there() -> None:
    trial = {"who": "one", "killed": True, "role": harm.NEWEST, "damage": harm.FLIP, "view": {**LESS, "right": 900}}
    trials = [
        {**trial, "outcome": outcome} for outcome in (campaign.SILENT, campaign.REFUSED, campaign.ALL, campaign.ALL)
    ]
    text = campaign.table({"messages": MANY, "contenders": ["one"], "missing": ["two is left out"], "trials": trials})
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert f"{harm.NEWEST}: {harm.FLIP} 1 / 1 / 2" in lines
    assert f"{campaign.ALL} 0 / 2" in lines
    assert f"most messages that one bit took in silence {MANY - 900}" in lines
    assert lines[-1] == "two is left out"


@pytest.mark.long(seconds=150)
def test_our_broker_loses_nothing_in_silence_whichever_file_is_damaged() -> None:
    pytest.importorskip("kio")
    figures = campaign.measure(1, False, quiet, [OURS])
    bad = {campaign.SILENT, campaign.POSITION, campaign.WRONG, campaign.HUNG, campaign.MUTE}
    assert json.loads(json.dumps(figures)) == figures
    assert len({trial["kind"] for trial in figures["trials"]}) >= 8
    assert [trial for trial in figures["trials"] if trial["outcome"] in bad] == []
