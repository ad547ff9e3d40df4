"""binlog: a row is inserted, updated and deleted; the three changes come in another order. A naive sink, and the mirror.

The changes are messages as Maxwell writes them from MySQL's binlog, sent to a topic in each order that three can have; and
once in the right order by a producer whose first request the broker refuses, so that the client's retry swaps them. Both
sinks read the same topic:

    naive     does what a message says as it comes: insert or replace, update, delete
    mirror    knows each change's position in the binlog, keeps the largest of each row, and passes over what is older
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import closing
from itertools import permutations
from pathlib import Path
from typing import Any

from confluent_kafka import Message as Received

from waterclock.changes import reader_of
from waterclock.changes.packed import CHANGES, as_table, packed
from waterclock.changes.row_change import Message
from waterclock.examples.lessons.clients import AT_ONCE, ONE_BY_ONE, messages, producer, send
from waterclock.examples.lessons.lesson import Lesson, tell
from waterclock.sinks import Batch, Replica, SQLiteSink, apply_once
from waterclock.streaming.frames import DEAD_SCHEMA
from waterclock.testing import Broker, Error

NAME = "pen"
CHANGE = {"database": "shop", "table": "item", "primary_key_columns": ["id"], "commit": True}
SOURCE = {  # what happened, in the order in which it did; `position` is where it stands in the binlog
    "insert": CHANGE | {"type": "insert", "position": "binlog.000001:400", "data": {"id": 7, "name": NAME, "price": 1}},
    "update": CHANGE
    | {
        "type": "update",
        "position": "binlog.000001:700",
        "data": {"id": 7, "name": NAME, "price": 2},
        "old": {"price": 1},
    },
    "delete": CHANGE | {"type": "delete", "position": "binlog.000001:900", "data": {"id": 7, "name": NAME, "price": 2}},
}
FIRST = CHANGE | {"type": "insert", "position": "binlog.000001:100", "data": {"id": 1, "name": "ink", "price": 9}}
AHEAD = CHANGE | {"type": "insert", "position": "binlog.000001:200", "data": {"id": 2, "name": "pad", "price": 5}}
AHEAD_MS = 200  # the answer to it comes late, so that the changes behind are all on their way when the first is refused
RETRIED = "sent in order, the first request refused once"
TABLE = '"shop.item"'
ROW = f"SELECT name, price FROM {TABLE} WHERE id = 7"


def lesson() -> Lesson:
    """Every order, and a retry, against a broker of their own."""
    tell("The source: a row is inserted, its price is updated, the row is deleted. In the end it has no such row.")
    tell(
        "The naive sink does what each message says as it comes. The mirror, waterclock's, goes by the binlog's positions."
    )
    with Broker() as broker, tempfile.TemporaryDirectory() as folder:
        rows = [swapped(broker, Path(folder), order) for order in permutations(SOURCE)]
        rows.append(retried(broker, Path(folder)))
    return Lesson(
        "binlog: the insert, the update and the delete of one row, as they came to a topic",
        rows,
        [
            f"Of {len(rows)} ways to come the naive sink ends wrong in {sum('naive' in row['wrong'] for row in rows)}, "
            "and right in some that were swapped: a test with one order proves nothing.",
            "The mirror holds what the source holds in all of them: the position decides, not the order of arrival.",
            "A retry swaps changes too, where several requests are in flight without idempotence: see `demo order`.",
        ],
    )


def swapped(broker: Broker, folder: Path, order: Sequence[str]) -> dict[str, Any]:
    """The changes in this order, in a topic of their own."""
    topic = "-".join(("binlog", *order))
    broker.create_topic(topic)
    send(producer(broker.bootstrap, **ONE_BY_ONE, max_in_flight=1), topic, [json.dumps(SOURCE[kind]) for kind in order])
    return row("order of sending", broker.bootstrap, topic, folder)


def retried(broker: Broker, folder: Path) -> dict[str, Any]:
    """The changes in their order, by a producer with five requests in flight, the first of which is refused once."""
    topic = "binlog-retried"
    broker.create_topic(topic)
    sender = producer(broker.bootstrap, **ONE_BY_ONE, max_in_flight=5)
    send(sender, topic, [json.dumps(FIRST)])
    late = broker.faults.delay("Produce", AHEAD_MS, times=1, topic=topic)
    with late, broker.faults.answer("Produce", Error.NOT_LEADER_OR_FOLLOWER, topic=topic):
        send(sender, topic, map(json.dumps, [AHEAD, *SOURCE.values()]))
    return row("a retry", broker.bootstrap, topic, folder)


def row(how: str, bootstrap: str, topic: str, folder: Path) -> dict[str, Any]:
    """What both sinks hold of the row in the end."""
    came = list(messages(bootstrap, topic, **AT_ONCE))
    kinds = [change["type"] for change in map(decoded, came) if change["data"]["id"] == 7]
    naive, mirror = naive_sink(came), mirror_sink(came, folder / f"{topic}.sqlite")
    tell(f"{', '.join(kinds)} ({how}): the naive sink holds {naive}, the mirror {mirror}")
    held = {"naive": naive, "mirror": mirror, "source": "nothing"}
    wrong = [who for who in ("naive", "mirror") if held[who] != held["source"]]
    return {"came as": kinds, "cause": how, **held, "wrong": wrong}


def decoded(message: Received) -> dict[str, Any]:
    change: dict[str, Any] = json.loads(message.value())
    return change


def naive_sink(came: Sequence[Received]) -> str:
    """Each message done as it comes."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute(f"CREATE TABLE {TABLE} (id INTEGER PRIMARY KEY, name TEXT, price INTEGER)")
        for change in map(decoded, came):
            do = {"insert": "INSERT OR REPLACE INTO {} VALUES (:id, :name, :price)",
                  "update": "UPDATE {} SET name = :name, price = :price WHERE id = :id",
                  "delete": "DELETE FROM {} WHERE id = :id"}[change["type"]]  # fmt: skip
            database.execute(do.format(TABLE), change["data"])
        return held_by(database)


def mirror_sink(came: Sequence[Received], file: Path) -> str:
    """Each message a batch, as bad as batches can be, given to the sink that pipelines have."""
    read, nothing_dead = reader_of("maxwell"), DEAD_SCHEMA.empty_table()
    with closing(SQLiteSink(file, "changes", mirror=Replica())) as sink:
        sink.open(CHANGES)
        for number, one in enumerate(came):
            changes = as_table(packed(change) for change in read(Message(one.key(), one.value(), one.offset())))
            apply_once(sink, Batch("lesson", number, None, changes, nothing_dead, {}, None, 0.0))
    with closing(sqlite3.connect(file)) as database:
        return held_by(database)


def held_by(database: sqlite3.Connection) -> str:
    """The row as a word; a table that a mirror had no reason to make holds nothing."""
    if not database.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (TABLE.strip('"'),)).fetchone():
        return "nothing"
    found = database.execute(ROW).fetchone()
    return "nothing" if found is None else f"{found[0]} at {found[1]}"
