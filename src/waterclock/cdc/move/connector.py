"""A Debezium connector's settings, and the command line of the same capture.

Rule 1: no setting is passed over in silence: it is said by an option, or it is named with the reason why there is none.
Rule 2: what would capture other tables, or others' rows, is refused: a pattern that the options cannot say.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple

from waterclock.errors import UsageError, unstopped

_CONNECTORS = {"MySqlConnector": "mysql", "MariaDbConnector": "mariadb", "PostgresConnector": "postgres"}
_PORTS = {"mysql": "3306", "mariadb": "3306", "postgres": "5432"}
_SAID = {
    "name", "connector.class", "tasks.max", "topic.prefix", "database.hostname", "database.port", "database.user",
    "database.password", "database.dbname", "database.server.id", "slot.name", "publication.name", "table.include.list",
    "tombstones.on.delete", "heartbeat.interval.ms", "value.converter.schemas.enable", "converter.schemas.enable",
}  # fmt: skip
# what has the same meaning here whatever a capture is told, and what it may say
_SAME = {
    "plugin.name": ("pgoutput",),
    "value.converter": ("org.apache.kafka.connect.json.JsonConverter",),
    "key.converter": ("org.apache.kafka.connect.json.JsonConverter",),
    "skipped.operations": ("none",),
    "slot.drop.on.stop": ("false",),
    "provide.transaction.metadata": ("false",),
    "include.schema.changes": ("false",),
    "database.ssl.mode": ("disabled", "preferred", "verify_identity", "verify_ca"),
    "database.sslmode": ("prefer", "disable"),
    "decimal.handling.mode": ("precise", "string"),
    "interval.handling.mode": ("numeric", "string"),
    "debezium.format.key": ("json",),
    "debezium.format.value": ("json",),
}
# what Debezium takes where the file does not say it, and means something else than here
_BY_DEFAULT = {"skipped.operations": "t"}
_OF_MYSQL = {"include.schema.changes": "true", "bigint.unsigned.handling.mode": "long"}
_WIDE = {"mysql": "database.include.list", "mariadb": "database.include.list", "postgres": "schema.include.list"}
_EXCLUDED = ("table.exclude.list", "database.exclude.list", "schema.exclude.list")
_OWN_PLACES = ("offset.", "schema.history.", "database.history.")  # where Debezium keeps what it needs itself
_LITERAL = re.compile(r"[\w$-]+")


class SameCapture(NamedTuple):
    """`words` are the command line behind `waterclock`; `unsaid` names each setting without a counterpart."""

    kind: str
    prefix: str
    words: list[str]
    unsaid: dict[str, str]
    password: str


def settings_of(text: str) -> dict[str, str]:
    """Of properties, of Connect's JSON, and of Debezium Server's properties.

    >>> settings_of("debezium.source.topic.prefix = shop")
    {'topic.prefix': 'shop'}
    """
    if text.lstrip().startswith("{"):
        try:
            fields = json.loads(text)
        except ValueError as error:
            raise UsageError(f"The connector's file is no JSON: {unstopped(error)}.") from None
        config = fields.get("config", fields)
        given = {key: value for key, value in config.items() if value is not None}
        found = {key: value if isinstance(value, str) else json.dumps(value) for key, value in given.items()}
    else:
        lines = re.sub(r"\\\r?\n\s*", "", text).splitlines()
        pairs = (
            re.split(r"\s*[=:]\s*|\s+", line.strip(), maxsplit=1)
            for line in lines
            if line.strip()[:1] not in ("", "#", "!")
        )
        found = {name: "".join(value).replace("\\\\", "\\") for name, *value in pairs}
    return {_known(key): value.lower() if value.lower() in ("true", "false") else value for key, value in found.items()}


def _known(key: str) -> str:
    """As Connect calls it, which Debezium Server does not."""
    return re.sub(r"^debezium\.format\.(key|value)\.", r"\1.converter.", key).removeprefix("debezium.source.")


def moved(settings: Mapping[str, str], to: str) -> SameCapture:
    """The same capture; UsageError for what cannot be said."""
    kind = _CONNECTORS.get(settings.get("connector.class", "").rpartition(".")[2])
    prefix = settings.get("topic.prefix", "")
    if kind is None or not prefix or "database.hostname" not in settings:
        raise UsageError(
            "The file is none of a connector of MySQL, MariaDB or PostgreSQL with database.hostname and topic.prefix "
            f"(connector.class is {settings.get('connector.class', 'missing')})."
        )
    scheme = "postgres" if kind == "postgres" else "mysql"
    where = f"{settings['database.hostname']}:{settings.get('database.port', _PORTS[kind])}"
    database = f"/{settings.get('database.dbname', '')}" if kind == "postgres" else ""
    words = [
        "cdc",
        f"{scheme}://{settings.get('database.user', 'root')}@{where}{database}",
        "--to",
        f"{to.rstrip('/')}/{prefix}",
    ]
    schemas = (
        settings.get("value.converter.schemas.enable", settings.get("converter.schemas.enable", "true")) != "false"
    )
    words += ["--form", "debezium-schemas" if schemas else "debezium"]
    for pattern in _patterns(settings, kind):
        words += ["--tables", pattern]
    if kind == "postgres":
        words += ["--slot", settings.get("slot.name", "debezium")]
        words += ["--publication", settings.get("publication.name", "dbz_publication")]
    elif kind == "mariadb":
        words += ["--connector", "mariadb"]
    for name, option in (("decimal.handling.mode", "--decimals"), ("interval.handling.mode", "--intervals")):
        words += [option, "string"] if settings.get(name, "").lower() == "string" else []
    if settings.get("tombstones.on.delete") == "false":
        words += ["--no-tombstones"]
    if settings.get("heartbeat.interval.ms", "0") != "0":
        words += ["--heartbeat-ms", settings["heartbeat.interval.ms"]]
    if "database.server.id" in settings and kind != "postgres":
        words += ["--server-id", settings["database.server.id"]]
    if settings.get("database.ssl.mode", "").lower().startswith("verify") and kind != "postgres":
        words += ["--tls"]
    return SameCapture(scheme, prefix, words, _unsaid(settings, kind, schemas), settings.get("database.password", ""))


def _unsaid(settings: Mapping[str, str], kind: str, schemas: bool) -> dict[str, str]:
    found, is_postgres = {}, kind == "postgres"
    same = {
        **_SAME,
        "time.precision.mode": ("adaptive",) if is_postgres else ("adaptive_time_microseconds",),
        "bigint.unsigned.handling.mode": ("precise",) if schemas else ("long",),
        "key.converter.schemas.enable": ("true" if schemas else "false",),
    }
    meant = {**_BY_DEFAULT, **({} if is_postgres else _OF_MYSQL), **settings}
    for name, value in sorted(meant.items()):
        if name.startswith(_OWN_PLACES):
            found[name] = "a place of Debezium's own; the capture's position lies in NAME.position"
        elif name in same and value.lower() not in map(str.lower, same[name]):
            found[name] = (
                f"it is {value}{'' if name in settings else ' by default'}; here it is as with {same[name][0]}"
            )
        elif name not in (*_SAID, _WIDE[kind]) and name not in same:
            found[name] = "there is no such option"
    return found


def _patterns(settings: Mapping[str, str], kind: str) -> list[str]:
    """Debezium's regular expressions as patterns of a shell, if they say no more than those can."""
    if excluded := [name for name in _EXCLUDED if settings.get(name)]:
        raise UsageError(
            f"{', '.join(excluded)}: a capture is told what it brings, not what it leaves out, and would bring that too: "
            r"name the tables that are wanted in its place, in table.include.list, such as shop\.item,shop\.sale, and run "
            "this once more."
        )
    given = {
        name: [_pattern(name, part.strip()) for part in settings[name].split(",") if part.strip()]
        for name in ("table.include.list", _WIDE[kind])
        if settings.get(name, "").strip()  # an empty list takes all
    }
    tables, wide = given.get("table.include.list"), given.get(_WIDE[kind], [])
    if tables is None:
        return [f"{each}.*" for each in wide]
    beyond = [
        table for table in tables if wide and not any(fnmatchcase(table.partition(".")[0], each) for each in wide)
    ]
    if beyond:
        raise UsageError(
            f"table.include.list takes {', '.join(beyond)}, of which {_WIDE[kind]} leaves something out, and a capture has "
            r"one list: write the tables one by one in table.include.list, such as shop\.item,shop\.sale, and run this "
            "once more."
        )
    return tables


def _pattern(name: str, expression: str) -> str:
    parts = re.split(r"(\\\.|\.\*|\.)", expression)
    if not all(part in ("", r"\.", ".*", ".") or _LITERAL.fullmatch(part) for part in parts):
        raise UsageError(
            f"{name}: {expression!r} says more than a pattern of a shell can. Write the tables one by one there, such as "
            r"shop\.item,shop\.sale, and run this once more."
        )
    return "".join({r"\.": ".", ".*": "*"}.get(part, part) for part in parts)
