"""`waterclock move debezium FILE`: the capture that a Debezium connector was, beginning where that one ended."""

from __future__ import annotations

import shlex
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from waterclock.arguments import describe
from waterclock.errors import UsageError

if TYPE_CHECKING:
    from waterclock.cdc.move.offset import Offset
    from waterclock.cdc.position import Position

_EXAMPLE = """waterclock move debezium shop.properties --offset connect.offsets --to kafka://127.0.0.1:9092
         (stop the connector first; --write stores the place)"""


def add_to(parser: ArgumentParser) -> None:
    """The options."""
    describe(parser, run, _EXAMPLE)
    parser.add_argument("tool", choices=["debezium"], help="what is moved from")
    parser.add_argument("file", metavar="FILE", help="the connector's settings: properties, or Kafka Connect's JSON")
    where = "its stored offset: Connect's or Debezium's file of offsets, or what GET /connectors/NAME/offsets answers"
    parser.add_argument("--offset", required=True, metavar="FILE", help=where)
    parser.add_argument("--to", required=True, metavar="kafka://HOST:9092", help="the Kafka that its topics are in")
    parser.add_argument("--write", action="store_true", help="store the position in Kafka, as NAME.position has it")
    parser.add_argument("--password-file", metavar="FILE", help="a file with the password (default: the connector's)")
    parser.add_argument(
        "--kafka-config", metavar="FILE", help="a file with librdkafka's settings, a line KEY=VALUE for each"
    )


def run(arguments: Namespace) -> int:
    """`waterclock move debezium`: print the command that goes on exactly where a Debezium connector ended, and each of its
    settings that has no counterpart; with --write, store the place."""
    from waterclock.cdc import command as cdc
    from waterclock.cdc import origin as origins
    from waterclock.cdc.move.connector import moved, settings_of
    from waterclock.cdc.move.offset import offset_of

    found = moved(settings_of(origins.read_file("FILE", arguments.file)), arguments.to)
    try:
        offset = offset_of(Path(arguments.offset).read_bytes(), found.prefix)
    except OSError as error:
        raise UsageError(f"--offset: {arguments.offset} cannot be read: {error.strerror}.") from None
    if offset.get("snapshot") and not (offset.get("snapshot_completed") or offset.get("last_snapshot_record")):
        raise UsageError("Debezium's snapshot had not ended. Start the connector once more, and stop it when it has.")
    if rest := offset.get("incremental_snapshot_collections"):
        again = f"waterclock cdc snapshot {found.prefix} --tables ... --to {arguments.to}"
        found.unsaid["incremental_snapshot_collections"] = f"{rest} had not come whole; once the capture runs: {again}"
    parser = ArgumentParser()
    cdc.add_options(parser)
    for option in ("password_file", "kafka_config"):
        if given := getattr(arguments, option):
            found.words.extend([f"--{option.replace('_', '-')}", given])
    captured = parser.parse_args(found.words[1:])
    variable = "PGPASSWORD" if found.kind == "postgres" else "MYSQL_PWD"
    captured.password = origins.password_of(captured, variable) or found.password
    if found.password and not arguments.password_file:
        found.unsaid["database.password"] = f"give it in {variable}, or by --password-file"
    position = _held(captured, _position(captured, offset))
    for name, why in found.unsaid.items():
        print(f"waterclock: {name} has no counterpart: {why}.", file=sys.stderr)
    inside = f", and {position.rows} records of the transaction {position.inside} behind it" if position.rows else ""
    print(f"# Debezium has written all up to {position.place}{inside}.")
    if arguments.write:
        _store(captured, position)
    print("# The position is stored." if arguments.write else "# The position is NOT stored yet: add --write.")
    print(f"waterclock {shlex.join(found.words)}")
    return 0


def _held(captured: Namespace, position: Position) -> Position:
    """It holds for the connector's tables, whose older rows were its own: none comes a second time."""
    from waterclock.cdc.held import EVERY, Held

    return position._replace(held=Held(tuple(captured.tables) or (EVERY,)))


def _position(captured: Namespace, offset: Offset) -> Position:
    from waterclock.cdc import origin as origins
    from waterclock.cdc.mysql.server import OWN as OF_MYSQL
    from waterclock.cdc.postgres.pgoutput import lsn_number
    from waterclock.cdc.postgres.slot import OWN as OF_POSTGRES
    from waterclock.cdc.source import TableFilter

    where = origins.database(captured.source)
    try:
        if where.kind == "postgres":
            from waterclock.cdc.postgres.middle import position_at

            slot = origins.slot_of(captured, where, "")
            wanted = TableFilter(captured.tables, OF_POSTGRES)
            commit = offset.get("lsn_commit")
            place = int(commit) if commit is not None else lsn_number("0/0")
            ended = offset.get("messageType") in ("COMMIT", None)
            return position_at(slot, wanted, place, int(offset["lsn"]), -1 if ended else int(offset["txId"]))
        from waterclock.cdc.mysql import middle

        login = origins.login_of(captured, where, "")
        place_of = (str(offset["file"]), int(offset["pos"]), str(offset.get("gtids") or ""))
        inside = (int(offset.get("event") or 0), int(offset.get("row") or 0))
        return middle.position_at(login, TableFilter(captured.tables, OF_MYSQL), *place_of, *inside)
    except KeyError as error:
        raise UsageError(f"The offset lacks {error}: it is none of a connector of this database.") from None


def _store(captured: Namespace, position: Position) -> None:
    from waterclock.cdc import origin as origins
    from waterclock.cdc.produce import Publisher, Target
    from waterclock.kafka.settings import from_file

    servers, topic = origins.kafka(captured.to)
    given = from_file("--kafka-config", captured.kafka_config)
    publisher = Publisher(Target(servers, topic, topics="per-table"), topic, given)
    try:
        if publisher.stored is not None:
            raise UsageError(
                f"{topic}.position has a position already, {publisher.stored.place}: a capture has begun there."
            )
        publisher.commit(position)
    finally:
        publisher.close()
