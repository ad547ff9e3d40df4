"""Whose binlog it is: whether a server has the history that a position was taken from, or another one under the same
numbers. MariaDB's GTIDs are numbers, and a server that was made anew begins them at 1 again.

Rule 1: numbers of MariaDB's binlogs only rise, and a binlog keeps the second in which it was begun. So the newest binlog of
        a start is stored: a later start finds it as it was, or finds that it was thrown away in its turn.
Rule 2: another server_id, or another server_uuid of MySQL, is a fail-over: its binlogs are others. GTIDs of MySQL bear the
        server's name; those of MariaDB are taken on trust, and that is said.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from waterclock.cdc.mysql.beginning import began
from waterclock.cdc.mysql.catalog import Cursor
from waterclock.cdc.mysql.server import MySqlLogin
from waterclock.errors import UsageError

log = logging.getLogger("waterclock.cdc")


def history(login: MySqlLogin, cursor: Cursor, maria: bool, held: Mapping[str, str]) -> dict[str, str]:
    """What is to be stored of the server; UsageError if it is not the one of which `held` was stored."""
    cursor.execute(f"select @@global.{'server_id' if maria else 'server_uuid'}")
    number = str(cursor.fetchall()[0][0])
    if held and held["id"] != number:
        log.warning(
            "This is another server than before: %s, and it was %s. After a fail-over that is right: then it has all that "
            "the former one had written when the capture read it last. This is taken on trust.",
            number,
            held["id"],
        )
        held = {}
    if not maria:
        return {"id": number}
    cursor.execute("show binary logs")
    names = [str(row[0]) for row in cursor.fetchall()]
    if held and (gone := _differs(login, names, held)):
        raise UsageError(
            f"The server has another history under the same numbers: {gone}. It was made anew, or brought back from an "
            "older copy, or its binlogs were begun again (RESET MASTER). Bring the target up to date by hand, and start "
            "anew under another --name."
        )
    return {"id": number, "log": names[-1], "began": str(began(login, maria, names[-1]))}


def _differs(login: MySqlLogin, names: list[str], held: Mapping[str, str]) -> str:
    """What shows it; empty if nothing does."""
    name = held["log"]
    if name in names:
        second = str(began(login, True, name))
        told = f"its binlog {name} was begun at {second} (seconds since 1970), and the one that was read at {held['began']}"
        return "" if second == held["began"] else told
    base, _, number = name.rpartition(".")
    lower = [each for each in names if each.rpartition(".")[0] == base and int(each.rpartition(".")[2]) < int(number)]
    return (
        f"its binlogs are {names[0]} to {names[-1]}, and {name} was read, which can only be followed" if lower else ""
    )
