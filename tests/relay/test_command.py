"""The command: three commands from nothing to a delayed message, exit codes, Ctrl-C, the pages."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer

from tests.relay.world import World, step_until
from tests.web.reading import get, read_back
from waterclock import cli
from waterclock.broker.folder.inventory import locked
from waterclock.kafka.admin import Admin
from waterclock.relay.process import _folder_alone
from waterclock.testing import Broker


class Running(NamedTuple):
    """A relay with a broker of its own."""

    process: subprocess.Popen[str]
    servers: str
    door: str
    folder: Path


def waterclock(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "waterclock.cli", "relay", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def start(folder: Path) -> Running:
    process = waterclock("--embedded", str(folder), "--port", "0", "--metrics", "0", "--partitions", "2")
    assert process.stderr is not None
    assert process.stdout is not None
    door = re.search(r"http://([0-9.:]+)/metrics", process.stderr.readline())
    servers = re.search(r"on ([0-9.:]+), files in", process.stdout.readline())
    assert door is not None
    assert servers is not None
    return Running(process, servers[1], door[1], folder)


def end(running: Running, number: int = signal.SIGINT) -> tuple[int, str, str]:
    running.process.send_signal(number)
    out, err = running.process.communicate(timeout=30)
    return running.process.returncode, out, err


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    pytest.importorskip("confluent_kafka")
    made = start(tmp_path_factory.mktemp("embedded") / "data")
    yield made
    assert end(made)[0] == 0


@pytest.fixture(params=["relays", "logs"])
def where(request: pytest.FixtureRequest, running: Running) -> tuple[str, str]:
    """Whom `ls`, `due` and `show` ask: what they print is the same."""
    return ("--at", running.door) if request.param == "relays" else ("--bootstrap", running.servers)


def run(running: Running, *arguments: str) -> int:
    return cli.main(["relay", arguments[0], *arguments[1:], "--bootstrap", running.servers])


def test_three_commands_from_nothing_to_a_delayed_message(running: Running, capsys: pytest.CaptureFixture[str]) -> None:
    """The first is the fixture's: `waterclock relay --embedded DIR`."""
    assert run(running, "send", "reminders", "hello", "--delay", "300 ms", "--key", "k") == 0
    assert re.fullmatch(r"delays-\d-\d+ is in the log\n", capsys.readouterr().out)
    assert run(running, "read", "reminders", "--most", "1") == 0
    line = capsys.readouterr().out
    assert re.fullmatch(r"\d{4}-.*Z  [\d.]+m?s late  k  hello  \(delays-\d-\d+\)\n", line), line


def test_an_id_is_cancelled_replaced_and_shown(
    running: Running, where: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    one, two, nobody = (f"cart-{number}{where[0]}" for number in (1, 2, 9))
    for id in (one, two):
        assert run(running, "send", "reminders", "never", "--at", "2999-01-01T00:00Z", "--id", id) == 0
    assert run(running, "cancel", one) == 0
    assert run(running, "replace", two, "reminders", "new", "--delay", "100 days") == 0
    assert run(running, "cancel", nobody) == 1
    told = capsys.readouterr().out.splitlines()
    assert told[2:] == ["cancelled, 1 message", "replaced, 1 message", "unknown"]
    assert cli.main(["relay", "show", two, *where]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in shown] == ["STATE", "pending", "cancelled"]
    assert "2999-01-01T00:00:00Z" in shown[2]
    assert cli.main(["relay", "show", nobody, *where]) == 1


def test_what_is_pending_is_listed_by_time_and_topic_and_what_is_due_next(
    running: Running, where: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    target = f"later{where[0]}"
    for _ in range(3):
        run(running, "send", target, "x", "--delay", "1000 days")
    until_s = time.monotonic() + 20
    while True:
        capsys.readouterr()
        assert cli.main(["relay", "ls", *where]) == 0
        listed = capsys.readouterr()
        if re.search(rf"{target} +3$", listed.out, re.M):
            break
        assert time.monotonic() < until_s, listed
        time.sleep(0.2)
    assert listed.out.splitlines()[0].split() == ["DUE", "FROM", "TO", "TOPIC", "PENDING"]
    assert listed.err == ""
    assert cli.main(["relay", "due", *where]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["PARTITION", "0", "1"]


def test_the_pages_have_the_numbers(running: Running) -> None:
    assert run(running, "send", "numbers", "x", "--delay", "0 ms") == 0
    assert run(running, "read", "numbers", "--most", "1") == 0  # so it owns its partitions
    found = read_back(get(f"http://{running.door}/metrics")[1])
    assert found["waterclock_relay_delivered"][0] == "counter"
    assert found["waterclock_relay_lateness_seconds"][0] == "summary"
    assert [labels["partition"] for _, labels, _ in found["waterclock_relay_pending_messages"][1]] == ["0", "1"]
    record = json.loads(get(f"http://{running.door}/statistics.json")[1])
    assert (record["command"], record["statistics"]["topic"]) == ("relay", "delays")
    assert set(record["statistics"]["lateness_ms"]) >= {"1", "10", "more"}


def test_a_series_is_sent_listed_and_cancelled(
    running: Running, where: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    series = [
        "--cron",
        "0 9 1 1 *",
        "--expires",
        "1 day",
        *["--zone", "Europe/Berlin", "--id", "yearly", "--missed", "all"],
    ]
    for _ in range(2):
        assert run(running, "send", "yearly", "new year", *series) == 0
    capsys.readouterr()
    assert run(running, "cancel", "yearly") == 0
    assert capsys.readouterr().out == "cancelled, 1 message\n"
    assert cli.main(["relay", "show", "yearly", *where]) == 0
    assert "T08:00:00Z  yearly  cancelled" in capsys.readouterr().out


def test_a_series_takes_the_place_of_a_message_and_what_recurs_is_listed(
    running: Running, where: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(running, "send", "weekly", "x", "--delay", "1000 days", "--id", "weekly") == 0
    cron = ("--cron", "0 9 * * MON", "--zone", "Europe/Berlin")
    assert run(running, "replace", "weekly", "weekly", "hello", *cron) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["replaced, 1 message"]
    assert cli.main(["relay", "ls", *where]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = lines.index("") + 1
    assert lines[at].split() == ["SERIES", "CRON", "ZONE", "NEXT", "TOPIC", "OCCURRENCE"]
    assert re.fullmatch(r"weekly +0 9 \* \* MON +Europe/Berlin +\d{4}-\d\d-\d\dT0[78]:00:00Z +weekly +1", lines[at + 1])
    assert cli.main(["relay", "show", "weekly", *where]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["REQUEST", "DUE", "TOPIC", "STATE", "CRON", "ZONE"]
    assert re.search(r"pending +0 9 \* \* MON  Europe/Berlin$", "\n".join(lines), re.M)
    assert run(running, "replace", "weekly", "weekly", "x", "--cron", "0 9 * *") == 2
    assert "--cron must be five fields" in capsys.readouterr().err
    assert run(running, "cancel", "weekly") == 0


def test_what_is_sent_cancelled_replaced_and_read_is_told_as_json(
    running: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(running, "send", "json", "v", "--delay", "100 days", "--id", "j", "--json") == 0
    receipt = json.loads(capsys.readouterr().out)
    assert (receipt["topic"], receipt["id"], set(receipt)) == ("delays", "j", {"topic", "partition", "offset", "id"})
    assert run(running, "replace", "j", "json", "hello", "--delay", "1 ms", "--key", "k", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"id": "j", "outcome": "replaced", "count": 1}
    assert run(running, "read", "json", "--most", "1", "--json") == 0
    read = json.loads(capsys.readouterr().out)
    assert (read["topic"], read["key"], read["value"]) == ("json", "k", "hello")
    assert read["late_ms"] >= 0
    assert re.fullmatch(r"delays-\d-\d+", read["request"])
    assert run(running, "cancel", "j", "--json") == 1
    assert json.loads(capsys.readouterr().out) == {"id": "j", "outcome": "already delivered", "count": 0}


def test_a_dead_letter_is_read_with_its_reason(running: Running, capsys: pytest.CaptureFixture[str]) -> None:
    producer = Producer({"bootstrap.servers": running.servers})
    producer.produce("delays", "hello", headers={"delay": "soon"})
    assert producer.flush(10) == 0
    assert run(running, "read", "delays.dead", "--most", "1") == 0
    line = capsys.readouterr().out
    assert re.fullmatch(r"\d{4}-.*Z  hello  dead: .*deliver-to.*\n", line), line
    assert run(running, "read", "delays.dead", "--most", "1", "--json") == 0
    assert json.loads(capsys.readouterr().out)["dead_reason"] == line.rpartition("dead: ")[2].rstrip()


def test_programs_are_told_the_same_as_json(
    running: Running, where: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    id = f"monthly{where[0]}"
    assert run(running, "send", "monthly", "x", "--cron", "0 9 1 * *", "--id", id) == 0
    step_until(lambda: cli.main(["relay", "show", id, *where]) == 0)
    # a relay's counts are those of its last turn, which may have been before
    step_until(
        lambda: not cli.main(["relay", "ls", *where]) and "monthly" in capsys.readouterr().out.partition("SERIES")[0]
    )
    told = {}
    for command in (["ls"], ["due"], ["show", id]):
        assert cli.main(["relay", *command, *where, "--json"]) == 0
        told[command[0]] = json.loads(capsys.readouterr().out)
    (series,) = [one for one in told["ls"]["series"] if one["id"] == id]
    assert (series["cron"], series["zone"], told["ls"]["more_series"]) == ("0 9 1 * *", "UTC", 0)
    assert set(told["ls"]["pending"][0]) == {"start_ms", "end_ms", "target", "pending"}
    assert [each["partition"] for each in told["due"]["partitions"]] == [0, 1]
    (message,) = told["show"]["messages"]
    assert (message["state"], message["cron"]) == ("pending", "0 9 1 * *")
    assert [each["missing"] for each in told.values()] == [[], [], []]
    assert cli.main(["relay", "show", "nobody", *where, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["messages"] == []
    assert run(running, "cancel", id) == 0


@pytest.mark.long(seconds=4)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_a_sentence_and_the_next_start_goes_on(number: int, tmp_path: Path) -> None:
    first = start(tmp_path / "data")
    run(first, "send", "reminders", "hello", "--delay", "3 s")
    code, out, err = end(first, number)
    assert (code, err) == (0, "")
    assert re.search(r"^0 delivered, [01] pending in \d partitions", out), out
    second = start(tmp_path / "data")
    assert run(second, "read", "reminders", "--most", "1") == 0
    code, out, err = end(second)
    assert (code, err) == (0, "")
    assert out.startswith("1 delivered, 0 pending in 2 partitions")


def test_an_id_that_nobody_knows_is_not_counted_once_for_each_partition(tmp_path: Path) -> None:
    relay = start(tmp_path / "data")
    assert run(relay, "cancel", "nobody") == 1
    _, out, _ = end(relay)
    assert out == "0 delivered, 0 pending in 2 partitions\n"


# Wrong usage


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "Say where Kafka is"),
        (["--embedded", "x", "--bootstrap", "h:1"], "Say where Kafka is"),
        (["send", "t", "v", "--delay", "soon"], "--delay must read like"),
        (["send", "t", "v", "--delay", "-3s"], "--delay must not be negative, got '-3s'"),
        (["send", "t", "v", "--expires", "-.5 s", "--delay", "1 s"], "--expires must not be negative, got '-.5 s'"),
        (["send", "t", "v", "--at", "2026-12-01T09:00"], "has no time zone"),
        (["send", "t", "v", "--at", "tomorrow"], "write --at 2026-12-01T09:00Z"),
        (["send", "t", "v", "--delay", "1 s", "--expires", "soon"], "--expires must read like"),
        (["send", "t", "v", "--cron", "0 9 * * *"], "--cron needs --id NAME"),
        (["send", "t", "v", "--cron", "0 9 * *", "--id", "x"], "--cron must be five fields"),
        (["send", "a b", "v", "--delay", "1 s"], "TOPIC must be the name of a topic, got 'a b'"),
        (["send", "t", "v", "--delay", "1 s", "--zone", "UTC"], "--zone and --missed are for what recurs"),
        (["replace", "x", "t", "v", "--delay", "1 s", "--missed", "all"], "--zone and --missed are for what recurs"),
        (["send", "t", "v", "--delay", "1 s", "--id", 300 * "x"], "ID must have 1 to 255 bytes, got 300"),
        (["send", "t", "v", "--delay", "1 s", "--expires", "2020-01-01T00:00Z"], "it would expire before it is due"),
        (["send", "TOPIC.dead", "v", "--delay", "1 s"], ".dead is the relay's own: nothing is delivered there"),
        (["replace", "x", "TOPIC", "v", "--delay", "1 s"], " is the relay's own: nothing is delivered there"),
        (["replace", "", "t", "v", "--delay", "1 s"], "there is no ID: it says what to replace"),
        (["cancel", ""], "has no id"),
        (["cancel", 300 * "x"], "ID must have 1 to 255 bytes, got 300"),
        (["read", "a b"], "No topic may be named 'a b'"),
        (["read", "r", "--kafka-config", "BYTES"], "is no text in UTF-8"),
        (["read", "r", "--kafka-config", "UNKNOWN"], "The Kafka client cannot be made: No such configuration property"),
        (["send", "t", "v", "--delay", "1 s", "--kafka-config", "UNKNOWN"], "The Kafka client cannot be made: "),
        (["--bootstrap", "h:1", "--topic", "a b"], "No topic may be named 'a b'"),
        (["--bootstrap", "h:1", "--topic", 245 * "x"], ".settled'"),
    ],
)
def test_wrong_usage_is_one_sentence(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str], relay_broker: Broker, tmp_path: Path
) -> None:
    with World(relay_broker, tmp_path, f"usage-{tmp_path.name}") as world:
        where = ["--bootstrap", relay_broker.bootstrap, "--topic", world.topic]
        (tmp_path / "BYTES").write_bytes(b"\xff=1")
        (tmp_path / "UNKNOWN").write_text("no.such.key=1")
        files = {name: str(tmp_path / name) for name in ("BYTES", "UNKNOWN")}
        asked = [files.get(word, word.replace("TOPIC", world.topic)) for word in arguments]
        assert cli.main(["relay", *asked, *(where if arguments[:1] and not arguments[0].startswith("-") else [])]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line


def test_what_to_do_where_a_relay_runs_with_its_broker_can_be_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # "choose another folder with --data", which is an option of the broker's and none of this command
    lock = locked(str(tmp_path / "broker"))
    assert cli.main(["relay", "--port", "0", "--embedded", str(tmp_path)]) == 2
    lock.release()
    told = capsys.readouterr().err
    assert f"another broker has {tmp_path}/broker open: stop it, or " in told
    (option,) = re.findall(r"of a relay (--[a-z]+)", told)
    assert cli._parser().parse_args(["relay", option, "another"]).embedded == "another"
    (option,) = re.findall(r"\((--[a-z]+);", told)
    assert cli._parser().parse_args(["broker", option, "another"]).data == "another"


def test_the_help_of_read_says_that_it_begins_with_the_oldest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["relay", "read", "--help"])
    assert "without --new these are the oldest that the topic holds" in " ".join(capsys.readouterr().out.split())


def test_two_relays_do_not_share_a_folder(running: Running, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(running.folder / "relay")
    assert cli.main(["relay", "--bootstrap", running.servers, "--folder", folder]) == 2
    assert "Another relay works in" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["ls"], ["show", "\udcff"]])
def test_without_a_door_it_is_said_how_to_open_one(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["relay", *command, "--at", "127.0.0.1:1"]) == 1
    assert "start one with --metrics 1" in capsys.readouterr().err


def test_a_name_that_is_damaged_is_made_anew(tmp_path: Path) -> None:
    for damaged in (b"", b"\xff\xfe", b"a b"):
        (tmp_path / "name").write_bytes(damaged)
        with _folder_alone(tmp_path) as name:
            assert re.fullmatch("[0-9a-f]{12}", name)
        with _folder_alone(tmp_path) as again:
            assert again == name


@pytest.mark.parametrize("door", ["nonsense", "h:1/statistics.json", "h:", ":1", "h:port", "http://a b:1"])
def test_an_address_that_is_none_is_wrong_usage(door: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        cli.main(["relay", "ls", "--at", door])
    assert raised.value.code == 2
    assert "is no HOST:PORT: write it as 127.0.0.1:9400" in capsys.readouterr().err


def test_what_answers_and_is_no_relay_is_said_to_be_none(
    capsys: pytest.CaptureFixture[str], relay_broker: Broker
) -> None:
    from waterclock.web.server import PageServer

    told = ('{"records": 7}', "1", "null", "[]", '{"partitions_of_topic": 1}')
    pages = ["hello", "[1]", 9_000 * "[", *(f'{{"statistics": {one}}}' for one in told)]
    for page in pages:
        with PageServer({"/statistics.json": lambda page=page: ("application/json", page)}, 0) as server:
            for command in (["ls"], ["due"], ["show", "x"]):
                assert cli.main(["relay", *command, "--at", server.url]) == 1
                (line,) = capsys.readouterr().err.splitlines()
                assert "is no relay" in line
    assert cli.main(["relay", "ls", "--at", relay_broker.bootstrap]) == 1
    assert "is no relay" in capsys.readouterr().err


def test_where_there_is_no_kafka_each_command_says_so_and_ends(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Admin.__init__
    monkeypatch.setattr(
        Admin, "__init__", lambda self, settings, patience_s=0.0, **more: real(self, settings, 0.0, **more)
    )
    message = ["reminders", "hello", "--delay", "1 s"]
    asked = (
        ["send", *message], ["cancel", "x"], ["replace", "x", *message], ["read", "r"], ["ls"], ["due"], ["show", "x"],
    )  # fmt: skip
    for command in asked:
        assert cli.main(["relay", *command, "--bootstrap", "127.0.0.1:1"]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("waterclock: There is no Kafka to talk to at 127.0.0.1:1: ")
        assert line.endswith(" `waterclock relay --embedded out/relay` starts one on this machine.")


def test_what_nobody_asked_owns_is_said_to_be_missing(
    capsys: pytest.CaptureFixture[str], relay_broker: Broker, tmp_path: Path
) -> None:
    from waterclock.relay.statistics import prometheus
    from waterclock.web.option import open_server

    with World(relay_broker, tmp_path, f"door-{tmp_path.name}", 2) as world:
        relay = world.relay()
        with open_server(0, "relay", relay.statistics, prometheus, {"/ids/": relay.show}):
            door = re.search(r"http://([0-9.:]+)/", capsys.readouterr().err)
            assert door is not None
            assert cli.main(["relay", "due", "--at", door[1]]) == 0
    assert "nothing is known of the partitions 0, 1" in capsys.readouterr().err
