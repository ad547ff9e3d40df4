"""The options that choose Debezium's form, and the form that they choose."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from waterclock.errors import UsageError

if TYPE_CHECKING:
    from waterclock.cdc.debezium.envelope import DebeziumForm
    from waterclock.cdc.origin import Database

MAXWELL, DEBEZIUM, SCHEMAS = "maxwell", "debezium", "debezium-schemas"


def add_to(parser: ArgumentParser) -> None:
    add = parser.add_argument
    form = (
        "how changes are written: maxwell; debezium, its JSON without schemas, a topic for each table; debezium-schemas, "
        "the same with them, as a JDBC sink needs it (default: %(default)s)"
    )
    add("--form", choices=[MAXWELL, DEBEZIUM, SCHEMAS], default=MAXWELL, help=form)
    add = parser.add_argument_group("Debezium's form").add_argument
    decimals = "decimals as bytes (precise) or as text, as decimal.handling.mode has it (default: precise)"
    add("--decimals", choices=["precise", "string"], help=decimals)
    intervals = "intervals in microseconds (numeric) or as text, as interval.handling.mode has it (default: numeric)"
    add("--intervals", choices=["numeric", "string"], help=intervals)
    add("--no-tombstones", action="store_true", help="no message without a value after a delete")
    beat = "write to __debezium-heartbeat.TOPIC so often, while the position moves (default: never)"
    add("--heartbeat-ms", type=int, metavar="MS", help=beat)
    add("--connector", choices=["mysql", "mariadb"], help="what source.connector says (default: mysql)")


def of(arguments: Namespace, where: Database, topic: str) -> DebeziumForm | None:
    """None for Maxwell's form; UsageError for an option that it does not have."""
    given = {
        "--decimals": arguments.decimals,
        "--intervals": arguments.intervals,
        "--no-tombstones": arguments.no_tombstones,
        "--heartbeat-ms": arguments.heartbeat_ms,
        "--connector": arguments.connector,
    }
    if arguments.form == MAXWELL:
        if wrong := [option for option, value in given.items() if value]:
            raise UsageError(f"{', '.join(wrong)}: only for Debezium's form. Add --form debezium, or leave it out.")
        return None
    if arguments.topics == "one":
        raise UsageError("--topics one: Debezium's form has a topic for each table. Leave it out.")
    if arguments.form == SCHEMAS and arguments.partial_rows:
        raise UsageError(
            "--partial-rows: a schema has no word for a number that is not there. Take --form debezium, without schemas."
        )
    from waterclock.cdc.debezium.envelope import DebeziumForm
    from waterclock.cdc.debezium.values import NUMERIC, PRECISE, Modes

    return DebeziumForm(
        topic,
        "postgresql" if where.kind == "postgres" else arguments.connector or "mysql",
        where.name,
        modes=Modes(arguments.decimals or PRECISE, arguments.intervals or NUMERIC, arguments.form == SCHEMAS),
        tombstones=not arguments.no_tombstones,
        heartbeat_ms=arguments.heartbeat_ms or 0,
    )
