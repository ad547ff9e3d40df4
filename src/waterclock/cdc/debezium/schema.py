"""The schemas that travel with Debezium's messages where `schemas.enable=true`, in Kafka Connect's words.

Rule 1: a column of the key is never null; of every other column it is not known here, so it may be.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

Schema = dict[str, Any]


def described(name: str, connector: str, columns: Mapping[str, Schema], key: Iterable[str]) -> tuple[str, str]:
    """The schemas of a table's keys and values, as JSON; `name` is the topic's."""
    keys = set(key)
    fields = [{**form, "optional": column not in keys, "field": column} for column, form in columns.items()]
    row: Schema = {"type": "struct", "fields": fields, "optional": True, "name": f"{name}.Value"}
    envelope: Schema = {
        "type": "struct",
        "fields": [
            {**row, "field": "before"},
            {**row, "field": "after"},
            {**_source(connector), "field": "source"},
            {
                **_struct("event.block", ["id:string", "total_order:int64", "data_collection_order:int64"]),
                "field": "transaction",
            },
            *_fields(["op:string", "ts_ms:int64?", "ts_us:int64?", "ts_ns:int64?"]),
        ],
        "optional": False,
        "name": f"{name}.Envelope",
        "version": 2,
    }
    by_name = {field["field"]: field for field in fields}
    of_key = {"type": "struct", "fields": [by_name[column] for column in key], "optional": False, "name": f"{name}.Key"}
    return _write(of_key), _write(envelope)


def _source(connector: str) -> Schema:
    common = ["version:string", "connector:string", "name:string", "ts_ms:int64", "snapshot:string?", "db:string",
              "sequence:string?", "ts_us:int64?", "ts_ns:int64?"]  # fmt: skip
    if connector == "postgresql":
        own = ["schema:string", "table:string", "txId:int64?", "lsn:int64?", "xmin:int64?", "origin:string?",
               "origin_lsn:int64?"]  # fmt: skip
        return {**_struct("io.debezium.connector.postgresql.Source", common + own), "optional": False}
    own = ["table:string?", "server_id:int64", "gtid:string?", "file:string", "pos:int64", "row:int32", "thread:int64?",
           "query:string?"]  # fmt: skip
    return {**_struct(f"io.debezium.connector.{connector}.Source", common + own), "optional": False}


def _struct(name: str, fields: list[str]) -> Schema:
    return {"type": "struct", "fields": _fields(fields), "optional": True, "name": name, "version": 1}


def _fields(words: list[str]) -> list[Schema]:
    """Of `name:type`, with a question mark if it may be null."""
    found = []
    for word in words:
        name, _, kind = word.partition(":")
        found.append({"type": kind.rstrip("?"), "optional": kind.endswith("?"), "field": name})
    return found


def _write(schema: Schema) -> str:
    return json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
