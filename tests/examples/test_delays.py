"""`waterclock demo delays`: its checker finds each kind of error; the whole of it, small, with a kill and with Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("kio")

from confluent_kafka import Producer

from waterclock import cli
from waterclock.clock import ManualClock, SystemClock
from waterclock.examples import command as demo
from waterclock.examples.delays.checker import Errors, Evidence, check
from waterclock.examples.delays.kills import LONG_S, SHORT_S, Kills, kills
from waterclock.examples.delays.plan import LEAD_MS, Plan, Reminder, Step, plan
from waterclock.examples.delays.reader import DEAD, REPLIES, Delivery, Reader
from waterclock.examples.delays.sender import TARGET, Sent
from waterclock.examples.delays.stage import RELAYS
from waterclock.examples.processes import Process
from waterclock.testing import Broker

START_MS = 1_000_000
KEY = b"user 7"


def reminder(number: int, due_ms: int, cancel_ms: int | None = None) -> Reminder:
    return Reminder(number, 0, due_ms, cancel_ms)


# Reminders 7 and 1007 are of one key; 8 is cancelled, and 9 too late.
PLANNED = {
    7: reminder(7, 3_000),
    1007: reminder(1007, 2_000),
    8: reminder(8, 5_000, 1_000),
    9: reminder(9, 2_500, 2_500),
}


def delivery(number: int, late_ms: int = 5, **other: Any) -> Delivery:
    one = PLANNED[number]
    made = Delivery(one.value, one.key.encode(), f"delays-0-{number}", START_MS + one.due_ms, 0)
    return made._replace(came_ms=made.due_ms + late_ms)._replace(**other)


def reply(number: int, outcome: str, count: int, **other: Any) -> dict[str, Any]:
    request = f"delays-0-{5000 + number}"
    return {
        "id": f"reminder-{number}",
        "action": "cancel",
        "outcome": outcome,
        "count": count,
        "request": request,
    } | other


def evidence(**other: Any) -> Evidence:
    """All is right: 8 was cancelled, 9 was not."""
    right = Evidence(
        Plan(PLANNED, ()),  # type: ignore[arg-type]
        START_MS,
        {number: Sent(f"delays-0-{number}", number, START_MS) for number in PLANNED},
        {number: Sent(f"delays-0-{5000 + number}", 5000 + number, START_MS) for number in (8, 9)},
        [delivery(1007), delivery(9), delivery(7)],
        [reply(8, "cancelled", 1), reply(9, "already delivered", 0)],
        [],
    )
    return replace(right, **other)


def test_where_all_came_and_all_was_answered_truly_nothing_is_wrong() -> None:
    found = check(evidence())
    assert found.errors == Errors()
    assert (found.delivered, found.cancelled, found.already_delivered) == (3, 1, 1)


@pytest.mark.parametrize(
    ("what", "seen"),
    [
        ("twice", {"deliveries": [delivery(1007), delivery(9), delivery(7), delivery(9)]}),
        ("early", {"deliveries": [delivery(1007), delivery(9), delivery(7, late_ms=-1)]}),
        ("strange", {"deliveries": [delivery(1007), delivery(9), delivery(7), delivery(7, value=b"hello")]}),
        ("strange", {"deliveries": [delivery(1007), delivery(9), delivery(7), delivery(7, key=b"user 8")]}),
        ("strange", {"deliveries": [delivery(1007), delivery(9), delivery(7), delivery(7, origin="delays-1-7")]}),
        ("strange", {"deliveries": [delivery(1007), delivery(9), delivery(7), delivery(7, due_ms=START_MS + 2_999)]}),
        ("out_of_order", {"deliveries": [delivery(7), delivery(9), delivery(1007)]}),
        ("cancelled_and_delivered", {"deliveries": [delivery(1007), delivery(9), delivery(7), delivery(8)]}),
        ("told_delivered_and_was_not", {"deliveries": [delivery(1007), delivery(7)]}),
        ("answers_wrong", {"replies": [reply(8, "cancelled", 1), reply(9, "already delivered", 0)] * 2}),
        ("dead_letters", {"dead": ["no such topic"]}),
    ],
)
def test_each_kind_of_error_is_found(what: str, seen: dict[str, Any]) -> None:
    errors = check(evidence(**seen)).errors
    assert getattr(errors, what) == (2 if what == "answers_wrong" else 1)
    assert errors.total == getattr(errors, what)


@pytest.mark.parametrize(
    "wrong",
    [{"outcome": "unknown"}, {"count": 2}, {"id": "reminder-1"}, {"action": "replace"}, {"request": "delays-3-3"}],
)
def test_an_answer_that_cannot_be_is_wrong(wrong: dict[str, Any]) -> None:
    seen = evidence(replies=[reply(8, "cancelled", 1), reply(9, "already delivered", 0) | wrong])
    assert check(seen).errors.answers_wrong == 1


def test_a_cancel_without_an_answer_is_told() -> None:
    assert check(evidence(replies=[reply(9, "already delivered", 0)])).errors.answers_missing == 1


def test_one_that_did_not_come_is_lost() -> None:
    made = Plan([reminder(0, 1_000), reminder(1, 2_000)], ())
    sent = {number: Sent(f"delays-0-{number}", number, START_MS) for number in (0, 1)}
    came = [Delivery(b"reminder 0", b"user 0", "delays-0-0", START_MS + 1_000, START_MS + 1_001)]
    errors = check(Evidence(made, START_MS, sent, {}, came, [], [])).errors
    assert (errors.lost, errors.total) == (1, 1)


def test_who_was_overtaken_is_shown_with_the_moments() -> None:
    (words,) = check(evidence(deliveries=[delivery(7), delivery(9), delivery(1007)])).shown
    assert words.startswith(
        "delays-0-1007: in the log at 0, due at 2,000, came at 2,005, behind delays-0-7: due at 3,000"
    )


def test_who_was_not_in_the_log_yet_cannot_be_overtaken() -> None:
    late = evidence().reminders | {1007: Sent("delays-0-1007", 1007, START_MS + 3_001)}
    seen = evidence(deliveries=[delivery(7), delivery(9), delivery(1007)], reminders=late)
    assert check(seen).errors.total == 0


def test_of_equal_due_times_the_order_of_the_log_counts() -> None:
    made = Plan([reminder(number, 1_000) for number in range(2_000)], ())
    sent = {number: Sent(f"delays-0-{number}", number, START_MS) for number in range(2_000)}
    came = [
        Delivery(b"reminder %d" % n, b"user 0", f"delays-0-{n}", START_MS + 1_000, START_MS + 1_001) for n in (1000, 0)
    ]
    assert check(Evidence(made, START_MS, sent, {}, came, [], [])).errors.out_of_order == 1


# The plan and the kills


def test_a_plan_sends_everything_seconds_before_it_is_due_and_cancels_a_share() -> None:
    made = plan(1_000, 10.0, 0.1, 3)
    assert made == plan(1_000, 10.0, 0.1, 3) != plan(1_000, 10.0, 0.1, 4)
    assert (len(made.reminders), made.cancels, len(made.steps)) == (1_000, 100, 1_100)
    assert all(each.due_ms - each.sent_ms >= LEAD_MS for each in made.reminders)
    assert [step.at_ms for step in made.steps] == sorted(step.at_ms for step in made.steps)
    cancels = [(each.sent_ms, each.cancel_ms) for each in made.reminders if each.cancel_ms is not None]
    assert all(sent_ms <= cancel_ms for sent_ms, cancel_ms in cancels)


class Victims:
    """Relays that are up or not."""

    def __init__(self) -> None:
        self.up, self.killed = False, list[str]()

    def kill(self, name: str, rest_s: float) -> bool:
        if self.up:
            self.killed.append(name)
        return self.up


def test_a_kill_whose_turn_has_come_waits_until_the_other_relay_runs() -> None:
    made = Kills(Plan([reminder(0, 1_000), reminder(1, 9_000)], [Step(0, 0, False)]), 3, 1)
    victims = Victims()
    made.look(60_000, victims)  # type: ignore[arg-type]
    assert (len(made.left), made.done) == (3, [])
    victims.up = True
    for _ in range(3):
        made.look(60_000, victims)  # type: ignore[arg-type]
    assert (made.left, len(made.done), set(victims.killed) <= set(RELAYS)) == ([], 3, True)


def test_every_other_kill_lasts_longer_than_the_group_waits() -> None:
    made = kills(4_000, 64_000, 6, 2)
    assert [each.rest_s for each in made] == [SHORT_S, LONG_S] * 3
    assert [each.at_ms for each in made] == sorted(each.at_ms for each in made)


def test_a_process_stays_away_for_as_long_as_it_is_told_and_the_next_time_for_a_moment(tmp_path: Path) -> None:
    clock = ManualClock()
    process = Process("sleeper", ["sleep", "600"], tmp_path / "log", clock)
    process.start()
    try:
        for rest_s, told in ((60.0, [60.0]), (0.5, [])):
            assert process.kill(*told)
            process.keep()
            clock.advance_s(rest_s)
            process.keep()
            assert not process.runs
            clock.advance_s(0.1)
            process.keep()
            assert process.runs
    finally:
        process.stop()


# The reader


def test_a_second_delivery_that_comes_last_is_read_before_anything_is_judged(
    kafka_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, may_read = Reader._take, threading.Event()
    monkeypatch.setattr(Reader, "_take", lambda self, messages: (may_read.wait(20), take(self, messages)))
    for topic in (TARGET, REPLIES, DEAD):
        kafka_broker.create_topic(topic)
    reader = Reader(kafka_broker.bootstrap, dict.fromkeys((TARGET, REPLIES, DEAD), 1), SystemClock())
    try:
        settings = {"bootstrap.servers": kafka_broker.bootstrap, "transactional.id": "relay", "log_level": 0}
        producer = Producer(settings)
        producer.init_transactions(20)
        for commits in (True, True, False):
            producer.begin_transaction()
            producer.produce(
                TARGET, b"reminder 7", KEY, headers=[("delayed-from", b"delays-0-7"), ("delayed-until", b"5")]
            )
            (producer.commit_transaction if commits else producer.abort_transaction)(20)
        reading = threading.Thread(target=reader.to_the_ends)
        reading.start()
        reading.join(0.1)
        assert reading.is_alive()
        may_read.set()
        reading.join(20)
        assert [one[:4] for one in reader.deliveries] == [(b"reminder 7", KEY, "delays-0-7", 5)] * 2
    finally:
        may_read.set()
        reader.close()


# The command


def test_where_a_package_is_missing_one_sentence_says_how_to_get_all(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "find_spec", lambda name: None if name == "matplotlib" else name)
    assert cli.main(["demo", "delays"]) == 1
    assert "matplotlib is missing, and this demo needs it: pip install" in capsys.readouterr().err


def command(folder: Path, *more: str) -> list[str]:
    pytest.importorskip("matplotlib")
    pytest.importorskip("rich")
    return [sys.executable, "-m", "waterclock.cli", "demo", "delays", "--quick", "--folder", str(folder), *more]


@pytest.mark.long(seconds=30)
@pytest.mark.parametrize("on", ["own", pytest.param("servers", marks=pytest.mark.servers)])
def test_each_comes_once_and_none_early_though_a_relay_is_killed(tmp_path: Path, campaign_seed: int, on: str) -> None:
    options = ["--cancel", "0.1", "--json", "--on", on, "--seed", str(campaign_seed % 1_000)]
    done = subprocess.run(command(tmp_path, *options), capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert (found["verdict"], sum(found["errors"].values()), len(found["kills"])) == ("right", 0, 1)
    assert found["delivered"] + found["cancelled"] == found["reminders"] == 2_000
    assert found["cancelled"] + found["already_delivered"] == 200
    assert (tmp_path / "lateness.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "report.json").read_text()) == found


@pytest.mark.long(seconds=15)
def test_ctrl_c_leaves_nothing_running(tmp_path: Path) -> None:
    log = tmp_path / "demo.log"
    with log.open("w") as out:
        running = subprocess.Popen(command(tmp_path / "out", "--json"), stdout=out, stderr=out)
    try:
        end_s = time.monotonic() + 60
        while len(_of(str(tmp_path / "out"))) < 4:  # the demo, the broker and two relays
            assert running.poll() is None, log.read_text()
            assert time.monotonic() < end_s
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 1
    finally:
        running.kill()
        running.wait()
    end_s = time.monotonic() + 20
    while left := _of(str(tmp_path / "out")):
        assert time.monotonic() < end_s, left
        time.sleep(0.05)
    assert "Traceback" not in log.read_text()


def _of(place: str) -> list[str]:
    """The command lines of processes that have this place in it."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if place in line:
            found.append(line)
    return found
