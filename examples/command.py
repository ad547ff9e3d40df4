"""`waterclock demo`: the main job, its driver killed, change data capture from end to end, and the lessons.

Rule 1: whose the options are stands in options.py; what a demo does, in its own folder.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from waterclock.arguments import count, describe
from waterclock.errors import EnvironmentMissing

LESSONS = ("order", "duplicates", "acks", "keys")


def add_to(parser: argparse.ArgumentParser) -> None:
    """The options of all demos; which demo has which, is looked at when it runs."""
    describe(parser, run, "waterclock demo fines --seed 7")
    what = "the main job, the main job with its driver killed, change data capture, or one of the lessons"
    parser.add_argument("name", choices=["fines", "kills", "cdc", *LESSONS], help=what)
    folders = "where fines, kills and cdc write everything (default: out/ and their name)"
    parser.add_argument("--folder", help=folders)
    seed = "of the disorder, of the writes, and of the kills (default: 1)"
    parser.add_argument("--seed", type=int, help=seed)
    changes = "cdc: how many rows are changed (default: 200000)"
    parser.add_argument("--changes", type=int, metavar="N", help=changes)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    on = "kills: waterclock's broker and SQLite, or Apache Kafka and PostgreSQL (default: own)"
    parser.add_argument("--on", choices=["own", "servers"], help=on)
    parser.add_argument("--kills", type=count, metavar="N", help="how many kills (default: kills 5, cdc none)")


def run(arguments: argparse.Namespace) -> int:
    """`waterclock demo fines`: the main job. `kills`: its driver killed. `cdc`: a database's changes into another one.
    `order`, `duplicates`, `acks`, `keys`: lessons."""
    from waterclock.examples.options import settle

    settle(arguments)
    if arguments.name in LESSONS:
        lesson = import_module(f"waterclock.examples.lessons.{arguments.name}").lesson()
        print(lesson.as_json() if arguments.json else lesson.as_text())
        return 0
    folder = Path(f"out/{arguments.name}" if arguments.folder is None else arguments.folder)
    if arguments.name == "cdc":
        return _cdc(arguments, folder)
    if arguments.name == "kills":
        from waterclock.examples.fines import kills

        number = 5 if arguments.kills is None else arguments.kills
        return int(kills.demo(folder, arguments.on, number, arguments.seed, arguments.json))
    from waterclock.examples.fines import main as fines

    return int(fines.demo(folder, arguments.seed, arguments.json))


def _cdc(arguments: argparse.Namespace, folder: Path) -> int:
    for name in ("kio", "confluent_kafka", "pymysqlreplication", "pgpq", "pyspark"):  # one of each extra
        if find_spec(name) is None:
            raise EnvironmentMissing(f"demo cdc needs it all, and {name} is missing: pip install 'waterclock[all]'")
    from waterclock.examples.cdc import main as cdc_demo

    kills = 0 if arguments.kills is None else arguments.kills
    wanted = cdc_demo.Wanted(folder, arguments.seed, arguments.changes, kills, arguments.json)
    return int(cdc_demo.demo(wanted))
