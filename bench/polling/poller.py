"""How a worker takes what is due from a table of tasks: two ways, each written as well as we can.

    id, due, payload      the task; `due` is when it is wanted
    done, version         taken or not, and how often the row was changed

An index holds due moments of rows that are not done: what is done costs a poll nothing, and what is due in 100 days lies
behind where it stops. Statements are prepared once. A whole batch is taken by one commit.

    SKIP LOCKED       one statement: locks rows that nobody else has locked, and marks them done
    optimistic lock   reads rows with their versions, then marks those done whose version is still the same;
                      who comes second waits for the first one's commit, and finds that he has lost

Rule 1: a row is handed over after the commit that took it, so nobody has it twice. A worker that dies in between loses
        it. Who cannot bear that needs a lease and a second commit: that is dearer, and not measured.
Rule 2: times are the database's: `now()` decides what is due.
Rule 3: the optimistic lock looks at the oldest first, as everybody writes it. To look at others at random would lose
        fewer races; it would be on the way to the first one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import psycopg
from psycopg.errors import DeadlockDetected

DUE: Final = "not done and due <= now() order by due limit {batch}"
TAKE: Final = f"""
    with taken as (select id from task where {DUE} for update skip locked)
    update task set done = true, version = version + 1 from taken where task.id = taken.id returning task.id, payload"""
LOOK: Final = f"select id, payload, version from task where {DUE}"
CLAIM: Final = """
    update task set done = true, version = task.version + 1
    from unnest(%s::bigint[], %s::int[]) as seen (id, version)
    where task.id = seen.id and task.version = seen.version returning task.id"""
Connection = psycopg.Connection[tuple[int, ...]]


class Poll(NamedTuple):
    """One look at the table: the rows that are ours now, how many we saw, and how many questions it took."""

    won: list[int]
    seen: int
    queries: int


Way = Callable[[Connection, int], Poll]


def skip_locked(connection: Connection, batch: int) -> Poll:
    """Take up to `batch` rows that are due and that nobody else is taking."""
    rows = connection.execute(TAKE.format(batch=batch), prepare=True).fetchall()
    return Poll([row[0] for row in rows], len(rows), 1)


def optimistic(connection: Connection, batch: int) -> Poll:
    """Look at up to `batch` rows that are due; those are ours that nobody changed since."""
    seen = connection.execute(LOOK.format(batch=batch), prepare=True).fetchall()
    if not seen:
        return Poll([], 0, 1)
    asked = [row[0] for row in seen], [row[2] for row in seen]
    try:
        won = connection.execute(CLAIM, asked, prepare=True).fetchall()
    except DeadlockDetected:  # two who lock rows in different orders: the database ends one, who has lost them all
        won = []
    return Poll([row[0] for row in won], len(seen), 2)


SKIP_LOCKED: Final = "SKIP LOCKED"
OPTIMISTIC: Final = "optimistic lock"
WAYS: Final[Mapping[str, Way]] = {SKIP_LOCKED: skip_locked, OPTIMISTIC: optimistic}
