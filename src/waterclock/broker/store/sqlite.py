"""The store of versions before this one: a SQLite file, taken over once and then moved aside.

Rule 1: it is moved aside once what it held is durable in the file that takes its place: an older version that is started on
    the folder then says that its store is gone, and does not go on from before.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from contextlib import closing

from waterclock.broker.errors import LogDamaged, renaming
from waterclock.broker.store.file import Contents
from waterclock.outside import os

log = logging.getLogger("waterclock.broker")


def kept_by_sqlite(path: str) -> Contents:
    """What the file at `path` holds; nothing if there is none. LogDamaged if it cannot be read."""
    if not os.path.exists(path):
        return {}
    contents: Contents = {}
    try:
        with closing(sqlite3.connect(path)) as database:
            for namespace, key, value in database.execute("SELECT room, key, value FROM kept"):
                try:
                    json.loads(value)  # a row had no checksum
                except (ValueError, TypeError):
                    log.error("%s is damaged: %s %r cannot be read, and is not known any more", path, namespace, key)
                else:
                    contents.setdefault(namespace, {})[key] = value.encode()
    except sqlite3.DatabaseError as error:
        raise LogDamaged(
            f"{path} cannot be read ({error}). It is the store of an earlier version: restore it; or {renaming(path)}, "
            f"and the files of its name too, to go on with the topics alone, without groups' offsets and transactions"
        ) from error
    return contents
