"""A change as Debezium's messages: an envelope with `before`, `after`, `source` and `op`, and a tombstone after a delete.

Rule 1: the same change has always the same bytes: no clock is read. `ts_ms` is the time of the transaction.
Rule 2: fields have the order that Connect's JSON converter gives them: the key's bytes are Debezium's, and so is the
        partition.
Rule 3: what a capture of waterclock does not know is null, or empty where Debezium's schema has no null (`file`, `pos`);
        the order of changes stands in `source.sequence`, and `source.version` says who wrote it.
Rule 4: a table without a primary key has no key: its changes have none either, and no tombstone.
Rule 5: a form belongs to a table's columns as they are now: other columns, another form.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from waterclock.cdc.debezium.schema import described
from waterclock.cdc.debezium.values import ColumnForm, Modes, column_form
from waterclock.cdc.form import KafkaMessage
from waterclock.changes.maxwell import COMPLETE, DELETE, INSERT, NULL, TRUNCATE, UPDATE, MaxwellMessage, quoted
from waterclock.changes.sql_types import ColumnTypes
from waterclock.errors import Unreadable

log = logging.getLogger("waterclock.cdc")
_OPS = {INSERT: "c", UPDATE: "u", DELETE: "d", TRUNCATE: "t"}  # of every other word: r, a row that a snapshot read
_HEARTBEATS = "__debezium-heartbeat"
_KEY_SCHEMA = '{"type":"struct","fields":[{"type":"string","optional":false,"field":"serverName"}],"optional":false,' \
    '"name":"io.debezium.connector.common.ServerNameKey"}'  # fmt: skip
_BEAT_SCHEMA = '{"type":"struct","fields":[{"type":"int64","optional":false,"field":"ts_ms"}],"optional":false,' \
    '"name":"io.debezium.connector.common.Heartbeat"}'  # fmt: skip


class TableForm(NamedTuple):
    """How a table's rows are written; the schemas are empty if they do not travel with the messages."""

    columns: Mapping[str, ColumnForm]
    key_schema: str
    value_schema: str


class DebeziumForm:
    """`prefix` is Debezium's `topic.prefix`; `connector` mysql, mariadb or postgresql; `database` is the one that
    PostgreSQL's tables are in."""

    def __init__(
        self,
        prefix: str,
        connector: str,
        database: str = "",
        *,
        modes: Modes = Modes(),  # noqa: B008
        tombstones: bool = True,
        heartbeat_ms: int = 0,
    ) -> None:
        self.heartbeat_ms = heartbeat_ms
        self._prefix, self._connector, self._database = prefix, connector, database
        self._modes = modes._replace(has_uuids=connector == "postgresql")
        self._schemas, self._tombstones = modes.schemas, tombstones
        self._forms: dict[tuple[str, str], tuple[ColumnTypes, tuple[str, ...], TableForm]] = {}
        self._said: set[tuple[str, str, str]] = set()

    def messages(self, change: MaxwellMessage) -> Iterator[KafkaMessage]:
        """The key, the value, and where they go if there is no key to say it; none for the end of a table's older rows."""
        if change.type == COMPLETE:
            log.warning(
                "%s.%s has come again. Rows that are gone from the source stay where they are: Debezium's form has no word "
                "for it (--form maxwell has).",
                change.database,
                change.table,
            )
            return
        form = self._form(change)
        key, chosen = None, zlib.crc32(f"{change.database}.{change.table}".encode())
        if change.key and change.type != TRUNCATE:
            key = self._wrapped(form.key_schema, self._key(change, form))
        yield KafkaMessage(key, self._wrapped(form.value_schema, self._payload(change, form)), chosen)
        if change.type == DELETE and key is not None and self._tombstones:
            yield KafkaMessage(key, None, chosen)

    def heartbeat(self, ts_ms: int) -> tuple[str, KafkaMessage]:
        """The topic of heartbeats, and one."""
        key = self._wrapped(_KEY_SCHEMA, f'{{"serverName":{quoted(self._prefix)}}}')
        beat = KafkaMessage(key, self._wrapped(_BEAT_SCHEMA, f'{{"ts_ms":{ts_ms}}}'))
        return f"{_HEARTBEATS}.{self._prefix}", beat

    def _form(self, change: MaxwellMessage) -> TableForm:
        table = (change.database, change.table)
        found = self._forms.get(table)
        if found is None or found[0] is not change.types or (change.key and found[1] != change.key):
            columns = {name: column_form(of, self._modes) for name, of in change.types.items()}
            schemas = ("", "")
            if self._schemas:
                name = f"{self._prefix}.{change.database}.{change.table}"
                shown = {name: form.schema for name, form in columns.items()}
                schemas = described(name, self._connector, shown, change.key)
            found = self._forms[table] = (change.types, change.key, TableForm(columns, *schemas))
        return found[2]

    def _wrapped(self, schema: str, payload: str) -> bytes:
        return (f'{{"schema":{schema},"payload":{payload}}}' if self._schemas else payload).encode()

    def _key(self, change: MaxwellMessage, form: TableForm) -> str:
        texts = []
        for name in change.key:
            text = self._value(change, form, name, change.data[name])
            if text == "null":
                raise Unreadable(
                    f"{change.database}.{change.table}: {name} is {change.data[name]} in a row's key, and Debezium's form "
                    "has nothing for it: two rows would become one. Leave the table out (--tables), or take --form maxwell."
                )
            texts.append(f"{quoted(name)}:{text}")
        return "{" + ",".join(texts) + "}"

    def _payload(self, change: MaxwellMessage, form: TableForm) -> str:
        before = after = "null"
        if change.type == DELETE:
            before = self._row(change, form, change.data, NULL)
        elif change.type != TRUNCATE:
            after = self._row(change, form, change.data, "")
            if change.old is not None:
                before = self._row(change, form, {**change.data, **change.old}, "")
        times = f'"ts_ms":{change.ts * 1000},"ts_us":{change.ts * 1_000_000},"ts_ns":{change.ts * 1_000_000_000}'
        op = _OPS.get(change.type, "r")
        source = self._source(change, op, times)
        return f'{{"before":{before},"after":{after},"source":{source},"transaction":null,"op":"{op}",{times}}}'

    def _row(self, change: MaxwellMessage, form: TableForm, row: Mapping[str, str], absent: str) -> str:
        """`absent` stands for a column that is not known; else what says that it keeps its value."""
        texts = [
            f"{quoted(name)}:{self._value(change, form, name, row[name]) if name in row else absent or column.absent}"
            for name, column in form.columns.items()
        ]
        return "{" + ",".join(texts) + "}"

    def _value(self, change: MaxwellMessage, form: TableForm, name: str, text: str) -> str:
        found = "null" if text == NULL else form.columns[name].convert(text)
        if found is not None:
            return found
        said = (change.database, change.table, name)
        if said not in self._said:
            self._said.add(said)
            log.warning(
                "%s.%s: %s is %s, for which Debezium's form has nothing: it is written as null, here and in later rows.",
                *said,
                text,
            )
        return "null"

    def _source(self, change: MaxwellMessage, op: str, times: str) -> str:
        first, *more = times.split(",")
        common = (
            f'"version":"waterclock","connector":"{self._connector}","name":{quoted(self._prefix)},{first},'
            f'"snapshot":"{"true" if op == "r" else "false"}"'
        )
        order = f'"sequence":"[\\"{change.sequence}\\",\\"{change.xoffset}\\"]",{",".join(more)}'
        if self._connector == "postgresql":
            high, _, low = change.gtid.partition("/")
            place = (int(high, 16) << 32) + int(low, 16) if low else 0
            return (
                f'{{{common},"db":{quoted(self._database)},{order},"schema":{quoted(change.database)},'
                f'"table":{quoted(change.table)},"txId":null,"lsn":{place},"xmin":null,"origin":null,"origin_lsn":null}}'
            )
        query = "null" if change.query is None else quoted(change.query)
        return (
            f'{{{common},"db":{quoted(change.database)},{order},"table":{quoted(change.table)},"server_id":0,'
            f'"gtid":{quoted(change.gtid)},"file":"","pos":0,"row":{change.xoffset},"thread":null,"query":{query}}}'
        )
