"""`waterclock demo`: the main job, its driver killed, change data capture and delayed messages with kills, and the lessons.

Rule 1: whose the options are stands in options.py; what a demo does, in its own folder.
"""

from __future__ import annotations

import argparse
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from waterclock.arguments import count, describe
from waterclock.errors import EnvironmentMissing, pip_install

LESSONS = ("order", "duplicates", "acks", "keys", "binlog", "replicas", "batching")


def add_to(parser: argparse.ArgumentParser) -> None:
    """The options of all demos; which demo has which, is looked at when it runs."""
    describe(parser, run, "waterclock demo fines --seed 7")
    what = "the main job, the main job with its driver killed, change data capture, delayed messages, or one of the lessons"
    parser.add_argument("name", metavar="DEMO", choices=["fines", "kills", "cdc", "delays", *LESSONS], help=what)
    folders = "where fines, kills, cdc and delays write everything (default: out/ and their name)"
    parser.add_argument("--folder", help=folders)
    seed = "of the disorder, of the writes, and of the kills (default: 1)"
    parser.add_argument("--seed", type=int, help=seed)
    changes = "cdc: how many rows are changed (default: 200000)"
    parser.add_argument("--changes", type=int, metavar="N", help=changes)
    to = "cdc: where the changes end up (default: postgres)"
    parser.add_argument("--to", choices=["postgres", "delta"], help=to)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    on = (
        "kills: waterclock's broker and SQLite, or Apache Kafka and PostgreSQL; delays: the broker alone (default: own)"
    )
    parser.add_argument("--on", choices=["own", "servers"], help=on)
    parser.add_argument(
        "--kills", type=count, metavar="N", help="how many kills (default: kills 5, delays 4, cdc none)"
    )
    _add_delays(parser)


def _add_delays(parser: argparse.ArgumentParser) -> None:
    reminders = "delays: how many are due within a minute (default: 100k)"
    parser.add_argument("--reminders", type=count, metavar="N", help=reminders)
    parser.add_argument(
        "--cancel", type=_share, metavar="SHARE", help="delays: how many are cancelled, 0.1 for one in ten"
    )
    quick = "delays: 2,000 reminders within 8 s, and one kill"
    parser.add_argument("--quick", action="store_true", default=None, help=quick)


def _share(text: str) -> float:
    with suppress(ValueError):
        if 0 <= (share := float(text)) <= 1:
            return share
    raise argparse.ArgumentTypeError(f"{text!r} is no share from 0 to 1: write 0.1 for one in ten")


def run(arguments: argparse.Namespace) -> int:
    """`waterclock demo fines`: the main job. `kills`: its driver killed. `cdc`: a database's changes into another one.
    `delays`: reminders through two relays that are killed. `order`, `duplicates`, `acks`, `keys`, `binlog`, `replicas`,
    `batching`: lessons."""
    from waterclock.examples.options import settle

    settle(arguments)
    if arguments.name in LESSONS:
        lesson = import_module(f"waterclock.examples.lessons.{arguments.name}").lesson()
        print(lesson.as_json() if arguments.json else lesson.as_text())
        return 0
    folder = Path(f"out/{arguments.name}" if arguments.folder is None else arguments.folder)
    if arguments.name == "cdc":
        return _cdc(arguments, folder)
    if arguments.name == "delays":
        return _delays(arguments, folder)
    if arguments.name == "kills":
        from waterclock.examples.fines import kills

        number = 5 if arguments.kills is None else arguments.kills
        return int(kills.demo(folder, arguments.on, number, arguments.seed, arguments.json))
    from waterclock.examples.fines import main as fines

    return int(fines.demo(folder, arguments.seed, arguments.json))


def _cdc(arguments: argparse.Namespace, folder: Path) -> int:
    for name in ("kio", "confluent_kafka", "pymysqlreplication", "pgpq", "deltalake", "pyspark"):  # one of each extra
        if find_spec(name) is None:
            what = pip_install("spark", "broker", "cdc", "postgres", "delta")
            raise EnvironmentMissing(f"demo cdc needs much, and {name} is missing: {what}")
    from waterclock.examples.cdc import main as cdc_demo

    kills = 0 if arguments.kills is None else arguments.kills
    wanted = cdc_demo.Wanted(folder, arguments.seed, arguments.changes, kills, arguments.json, arguments.to)
    return int(cdc_demo.demo(wanted))


def _delays(arguments: argparse.Namespace, folder: Path) -> int:
    for name in ("kio", "confluent_kafka", "numpy", "matplotlib", "rich"):
        if find_spec(name) is None:
            what = pip_install("broker", "relay", "demo")
            raise EnvironmentMissing(f"demo delays needs more, and {name} is missing: {what}")
    from waterclock.examples.delays.main import Wanted, demo

    quick = bool(arguments.quick)
    reminders = arguments.reminders or (2_000 if quick else 100_000)
    kills = arguments.kills or (1 if quick else 4)
    cancel = arguments.cancel or 0.0
    seconds = 8.0 if quick else 60.0
    wanted = Wanted(folder, reminders, seconds, cancel, kills, arguments.seed, arguments.on, arguments.json)
    return int(demo(wanted))
