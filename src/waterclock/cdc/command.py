"""`waterclock cdc`: a database's changes into Kafka, until Ctrl-C or SIGTERM; and what a person sees of it."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from waterclock.arguments import Beside, describe
from waterclock.cdc.debezium import option as form
from waterclock.errors import UsageError, WaterclockError, unstopped
from waterclock.signals import heard
from waterclock.web import option
from waterclock.wording import counted, show_duration

if TYPE_CHECKING:
    from waterclock.cdc.statistics import CaptureStatistics
    from waterclock.clock import Clock

_EXAMPLES = """waterclock cdc mysql://reader@127.0.0.1:3306/shop --to kafka://127.0.0.1:9092/shop
example: waterclock cdc postgres://replicator@127.0.0.1/shop --to kafka://127.0.0.1:9092/shop --topics per-table
         (the table public.item goes to the topic shop.public.item)"""
_SNAPSHOT = "waterclock cdc snapshot shop --tables shop.item,shop.sale --to kafka://127.0.0.1:9092"
_CLIENT = "a file with librdkafka's settings, a line KEY=VALUE for each: TLS and SASL"


def add_to(parser: ArgumentParser) -> None:
    """The options, and the command beside SOURCE."""
    add_options(parser)
    more = "a command beside it, with options of its own:"
    commands = parser.add_subparsers(action=Beside, prog=parser.prog, metavar="or snapshot", help=more)
    parser = commands.add_parser("snapshot", help="have tables of a running capture come once more, beside its changes")
    describe(parser, snapshot, _SNAPSHOT)
    parser.add_argument("asks", metavar="NAME", help="the running capture: its --name, which is by default its topic's")
    which = "tables that it holds, with commas between, or patterns of a shell such as shop.*; may be repeated"
    parser.add_argument("--tables", action="append", required=True, metavar="DATABASE.TABLE,...", help=which)
    parser.add_argument("--to", required=True, metavar="kafka://HOST:9092", help="the Kafka that the capture writes to")
    parser.add_argument("--kafka-config", metavar="FILE", help=_CLIENT)
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")


def defaults() -> dict[str, Any]:
    """What each option of a capture is if it is not given."""
    parser = ArgumentParser()
    add_options(parser)
    return {**{action.dest: action.default for action in parser._actions}, **parser._defaults}


def add_options(parser: ArgumentParser) -> None:
    """Those of a capture."""
    describe(parser, run, _EXAMPLES)
    source = "mysql://user@host:3306/database (MariaDB too), or postgres://..."
    parser.add_argument("source", metavar="SOURCE", help=source)
    parser.add_argument(
        "--to", required=True, metavar="kafka://HOST:9092/TOPIC", help="the Kafka and the topic that the changes go to"
    )
    parser.add_argument(
        "--name", help="the name of this capture, which one process at a time has (default: the topic's)"
    )
    topics = "one: all changes go to TOPIC; per-table: each table has its TOPIC.DATABASE.TABLE (default: one)"
    parser.add_argument("--topics", choices=["one", "per-table"], help=topics)
    order = "key: each row in order, in any number of partitions; global: all in order, in one (default: %(default)s)"
    parser.add_argument("--order", choices=["key", "global"], default="key", help=order)
    made = "how many partitions the topic gets if it has to be made (default: %(default)s)"
    parser.add_argument("--partitions", type=int, default=4, metavar="N", help=made)
    start = "where the first run begins: start (all that the log still has), now, or a GTID (default: %(default)s)"
    parser.add_argument("--from", dest="begin", default="start", metavar="WHERE", help=start)
    parser.add_argument("--once", action="store_true", help="end when everything that is there now is in Kafka")
    which = "only these tables, as patterns of a shell such as shop.*; may be repeated (default: all of the database)"
    parser.add_argument("--tables", action="append", default=[], metavar="DATABASE.TABLE", help=which)
    skip = "leave this transaction out: a GTID, of PostgreSQL an LSN; may be repeated"
    parser.add_argument("--skip", action="append", default=[], metavar="TRANSACTION", help=skip)
    aside = "put a record that cannot be read into this topic, and go on (default: stop, and name the ways on)"
    parser.add_argument("--dead-letters", default="", metavar="TOPIC", help=aside)
    _add_older(parser)
    parser.add_argument("--password-file", metavar="FILE", help="a file with the password (or: MYSQL_PWD, PGPASSWORD)")
    parser.add_argument("--kafka-config", metavar="FILE", help=_CLIENT)
    parser.add_argument("--json", action="store_true", help="print what was done as JSON, at the end")
    for more in (form.add_to, option.add_to, option.add_hidden, _add_databases):
        more(parser)


def _add_older(parser: ArgumentParser) -> None:
    add = parser.add_argument_group("rows that are older than the log").add_argument
    here = "let the first run begin although there are rows older than the log, which do not come"
    add("--from-here", action="store_true", help=here)
    older = (
        "older rows that come beside the log: initial (a first start brings all that is older than the log), when-needed "
        "(those of tables too asked for and not held), or never (default: initial; with --from or --from-here never)"
    )
    add("--snapshot", choices=["initial", "when-needed", "never"], help=older)
    only = "end when all that is older than the log is in Kafka"
    add("--snapshot-only", action="store_true", help=only)
    rate = "so many older rows a second at most (default: no limit)"
    add("--snapshot-rate", type=int, default=0, metavar="N", help=rate)
    new = (
        "what to do if a table is asked for of which the stored position does not hold: ask (count its rows, and stop), or "
        "from-now (begin with it at the position; its older rows do not come) (default: %(default)s)"
    )
    add("--new-tables", choices=["ask", "from-now"], default="ask", help=new)


def _add_databases(parser: ArgumentParser) -> None:
    parser.set_defaults(password=None)  # of a program's (door/), never on a command line
    add = parser.add_argument_group("MySQL and MariaDB").add_argument
    types = (
        "the type of a column, if MariaDB's binlog lacks it: uuid, inet6, inet4, binary, json or text; may be repeated"
    )
    add("--type", action="append", default=[], metavar="DATABASE.TABLE.COLUMN=TYPE", help=types)
    add("--queries", action="store_true", help="add each row's SQL statement, if the server writes them")
    add(
        "--server-id",
        type=int,
        metavar="N",
        help="this capture's id as a replica, which no other one has (default: from the name)",
    )
    add("--tls", action="store_true", help="talk to the server by TLS, and check its certificate")
    partial = (
        "take rows in part (binlog_row_image MINIMAL or NOBLOB): an update brings its key and what it changed, and its "
        "reader keeps the rest"
    )
    add("--partial-rows", action="store_true", help=partial)
    add = parser.add_argument_group("PostgreSQL").add_argument
    add("--slot", help="the replication slot; made if it is missing (default: from the name)")
    add("--publication", help="the publication; made if it is missing (default: from the name)")
    published = "take the publication as it is, although it leaves out kinds of changes, rows, columns or tables"
    add("--as-published", action="store_true", help=published)
    behind = "leave out all that was committed up to this place of the log: for what cannot be decoded"
    add("--skip-to", default="", metavar="LSN", help=behind)


def run(arguments: Namespace) -> int:
    """`waterclock cdc`: what a database commits, in order, exactly once into Kafka, until Ctrl-C or SIGTERM."""
    from waterclock.cdc import origin as origins
    from waterclock.cdc.capture import Capture
    from waterclock.cdc.produce import Publisher, Target
    from waterclock.cdc.snapshot import WholePlace
    from waterclock.cdc.statistics import prometheus
    from waterclock.clock import SystemClock
    from waterclock.kafka.settings import from_file

    where, clock = origins.database(arguments.source), SystemClock()
    origins.check_names(arguments.tables)
    servers, topic = origins.kafka(arguments.to)
    name = arguments.name or topic
    origin = (origins.mysql if where.kind == "mysql" else origins.postgres)(arguments, where, name, clock)
    try:
        written = form.of(arguments, where, topic)
        topics = arguments.topics or ("per-table" if written else "one")
        target = Target(servers, topic, arguments.order, arguments.partitions, arguments.dead_letters, topics)
    except ValueError as error:
        raise UsageError(f"{unstopped(error)}.") from None
    given = from_file("--kafka-config", arguments.kafka_config)
    publisher = partial(Publisher, target, name, given, clock, written)
    shown = CaptureProgress(clock, arguments.json)
    capture = Capture(publisher, origin.source, clock, start=origin.begin, report=shown.report, lost=shown.lost)
    shows, hides = ("cdc", capture.statistics, partial(prometheus, name)), arguments.hide_values
    with heard(), option.open_server(arguments.metrics, *shows, console=arguments.console, hide_values=hides):
        waits, refused = bool(arguments.tables) and not arguments.once, False
        origins.say_what_is_missing(origin, waits, lambda said: print(f"waterclock: {said}", file=sys.stderr))
        try:
            once = WholePlace(origin.end()) if arguments.once else None
            capture.run(WholePlace() if arguments.snapshot_only else once)
        except WaterclockError:
            refused = not capture.statistics().commits  # of nothing there are no figures
            raise
        finally:
            if not refused:
                now = capture.statistics()
                shown.end(now.hidden() if hides else now)
    return 0


def snapshot(arguments: Namespace) -> int:
    """`waterclock cdc snapshot`: have tables of a running capture come once more, beside its changes. Rows that the target
    has and the source no more go. The exit code is 1 if a table does not come."""
    from waterclock.cdc.ask import run_snapshot

    return run_snapshot(arguments)


class CaptureProgress:
    """One line on a terminal, twice a second; at the end a sentence, or JSON."""

    def __init__(self, clock: Clock, as_json: bool) -> None:
        self._clock, self._json = clock, as_json
        self._began_ns = self._printed_ns = clock.monotonic_ns()

    def report(self, now: CaptureStatistics) -> None:
        if sys.stderr.isatty() and self._clock.monotonic_ns() - self._printed_ns >= 500_000_000:
            self._printed_ns = self._clock.monotonic_ns()
            print(f"\r\x1b[K{self._line(now)}   Ctrl-C ends", end="", file=sys.stderr, flush=True)

    def lost(self, error: WaterclockError) -> None:
        print(f"waterclock: {error} Trying again.", file=sys.stderr, flush=True)

    def end(self, now: CaptureStatistics) -> None:
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr)
        print(json.dumps({**asdict(now), "seconds": self._seconds()}) if self._json else self._line(now))

    def _seconds(self) -> float:
        return round((self._clock.monotonic_ns() - self._began_ns) / 1e9, 3)

    def _line(self, now: CaptureStatistics) -> str:
        seconds = max(self._seconds(), 0.001)
        place = f", up to {now.place}" if now.place else ""
        counts = f"{counted(now.changes, 'change')} of {counted(now.transactions, 'transaction')} in Kafka"
        aside = f", {counted(now.dead_letters, 'record')} put aside" if now.dead_letters else ""
        return f"{counts} ({now.changes / seconds:,.0f}/s){aside}{place}{self._older(now)}"

    def _older(self, now: CaptureStatistics) -> str:
        """What came of a snapshot, and what is still to come."""
        said = f"; {counted(now.older_rows, 'row')} older than the log" if now.older_rows else ""
        if not now.older_tables_left:
            return said
        rows = f" with about {counted(now.older_rows_left, 'row')}" if now.older_rows_left else ""
        seconds = round(now.older_rows_left * self._seconds() / now.older_rows) if now.older_rows else 0
        left = f", about {show_duration(seconds * 1000)} left" if seconds else ""
        return f"{said}{',' if said else ';'} {counted(now.older_tables_left, 'table')}{rows} still to come{left}"
