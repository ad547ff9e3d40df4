"""`waterclock demo`: the main job, its driver killed, change data capture and delayed messages with kills, and the lessons.

Rule 1: a demo is a command with its own options: who says --kills to a demo without kills would believe in them.
Rule 2: what a demo does stands in its own folder.
"""

from __future__ import annotations

import argparse
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from waterclock.arguments import Command, count, describe
from waterclock.doctor.command import DOORS
from waterclock.errors import EnvironmentMissing, pip_install

LESSONS = {
    "order": "a retry puts a message behind its followers: two cures, and one that is none",
    "duplicates": "an acknowledgement is lost, and a message is stored twice: three cures; then a crash",
    "acks": "what was reported to the producer, and what is still there after a crash",
    "keys": "order over partitions: all messages, or those of a key; and what a rebalance leaves of it",
    "binlog": "three changes of a row in another order: a naive sink, and the mirror",
    "replicas": "acks 0, 1 and all, with a follower that copies or stands still, and a leader that is killed",
    "batching": "the same messages one by one, batched, and with a linger: what each costs",
}


def add_to(parser: argparse.ArgumentParser) -> None:
    """A command for each demo."""
    parser.description, parser.epilog = (
        "A demo, or a lesson with a small table.",
        "example: waterclock demo fines --seed 7",
    )
    demos = parser.add_subparsers(required=True, metavar="DEMO")
    fines = _demo(demos, "fines", "the main job: real traffic fines through a pipeline", _fines)
    kills = _demo(demos, "kills", "the main job with its driver killed, and the tables compared", _kills)
    cdc = _demo(demos, "cdc", "a database's changes into another one, with kills", _cdc)
    delays = _demo(demos, "delays", "reminders through two relays that are killed", _delays)
    for one in (fines, kills, cdc, delays):
        name = one.prog.rpartition(" ")[2]
        one.add_argument("--folder", type=Path, default=f"out/{name}", help="for everything (default: %(default)s)")
        one.add_argument("--seed", type=int, default=1, help="of all that is drawn (default: %(default)s)")
    for one, number in ((kills, 5), (cdc, 0), (delays, None)):
        shown = "4, with --quick 1" if number is None else number
        one.add_argument("--kills", type=count, default=number, metavar="N", help=f"how many kills (default: {shown})")
    for one, ways in (
        (kills, "waterclock's broker and SQLite, or Apache Kafka and PostgreSQL"),
        (delays, "which broker"),
    ):
        one.add_argument("--on", choices=["own", "servers"], default="own", help=f"{ways} (default: %(default)s)")
    engine = "what runs the pipeline; local needs no Java (default: %(default)s)"
    fines.add_argument("--engine", choices=["spark", "local"], default="spark", help=engine)
    _add_cdc(cdc)
    _add_delays(delays)
    for lesson, what in LESSONS.items():
        _demo(demos, lesson, what, _lesson).set_defaults(lesson=lesson)


def _demo(demos: Any, name: str, what: str, run: Command) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = demos.add_parser(name, help=what)
    describe(parser, run, f"waterclock demo {name}")
    parser.description = f"`waterclock demo {name}`: {what}."
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


def _add_cdc(parser: argparse.ArgumentParser) -> None:
    changes = "how many rows are changed (default: %(default)s)"
    parser.add_argument("--changes", type=int, default=200_000, metavar="N", help=changes)
    to = "where the changes end up (default: %(default)s)"
    parser.add_argument("--to", choices=["postgres", "sqlite", "duckdb", "delta"], default="postgres", help=to)
    existing = "so many rows are there already, older than the log, such as 1M (default: none)"
    parser.add_argument("--existing", type=count, default=0, metavar="N", help=existing)


def _add_delays(parser: argparse.ArgumentParser) -> None:
    reminders = "how many are due within a minute (default: 100k)"
    parser.add_argument("--reminders", type=count, metavar="N", help=reminders)
    cancel = "how many are cancelled, 0.1 for one in ten"
    parser.add_argument("--cancel", type=_share, default=0.0, metavar="SHARE", help=cancel)
    parser.add_argument("--quick", action="store_true", help="2,000 reminders within 8 s, and one kill")


def _share(text: str) -> float:
    with suppress(ValueError):
        if 0 <= (share := float(text)) <= 1:
            return share
    raise argparse.ArgumentTypeError(f"{text!r} is no share from 0 to 1: write 0.1 for one in ten")


def _lesson(arguments: argparse.Namespace) -> int:
    _check_for(("kio", "confluent_kafka"), ("broker", "kafka"))
    if arguments.lesson == "binlog" and find_spec("pyarrow") is None:  # of the extra spark, which brings all of Spark
        raise EnvironmentMissing("pyarrow is missing, and this demo needs it: pip install pyarrow")
    lesson = import_module(f"waterclock.examples.lessons.{arguments.lesson}").lesson()
    print(lesson.as_json() if arguments.json else lesson.as_text())
    return 0


def _fines(arguments: argparse.Namespace) -> int:
    from waterclock.examples.fines import main as fines

    return int(fines.demo(arguments.folder, arguments.seed, arguments.json, arguments.engine))


def _kills(arguments: argparse.Namespace) -> int:
    from waterclock.examples.fines import kills

    return int(kills.demo(arguments.folder, arguments.on, arguments.kills, arguments.seed, arguments.json))


def _cdc(arguments: argparse.Namespace) -> int:
    _check_for(
        ("kio", "confluent_kafka", "pymysqlreplication", "pgpq", "duckdb", "deltalake", "pyspark"),  # one of each extra
        ("spark", "broker", "cdc", "postgres", "duckdb", "delta"),
    )
    from waterclock.examples.cdc import main as cdc_demo

    wanted = cdc_demo.Wanted(
        arguments.folder,
        arguments.seed,
        arguments.changes,
        arguments.kills,
        arguments.json,
        arguments.to,
        arguments.existing,
    )
    return int(cdc_demo.demo(wanted))


def _delays(arguments: argparse.Namespace) -> int:
    _check_for(("kio", "confluent_kafka", "numpy", "matplotlib", "rich"), ("broker", "relay", "demo"))
    from waterclock.examples.delays.main import Wanted, demo

    quick, cancel = arguments.quick, arguments.cancel
    reminders = arguments.reminders or (2_000 if quick else 100_000)
    kills = arguments.kills or (1 if quick else 4)
    seconds = 8.0 if quick else 60.0
    wanted = Wanted(arguments.folder, reminders, seconds, cancel, kills, arguments.seed, arguments.on, arguments.json)
    return int(demo(wanted))


def _check_for(packages: tuple[str, ...], extras: tuple[str, ...]) -> None:
    """EnvironmentMissing where one of the packages is not there: before minutes are spent."""
    for name in packages:
        if find_spec(name) is None:
            doors = " ".join(extra for extra in extras if extra in DOORS)
            raise EnvironmentMissing(f"{name} is missing, and this demo needs it: {pip_install(*extras)}", door=doors)
