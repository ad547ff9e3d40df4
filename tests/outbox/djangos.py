"""Django's connection to a database of the tests', without a project."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import django
import psycopg
from django import conf, db  # not what they hold: pytest looks at each name of a module, and settings are not there yet


@contextmanager
def connected(wrapper: type[Any], conninfo: str) -> Iterator[Any]:
    """The connection that `transaction.atomic` without a name takes."""
    given = psycopg.conninfo.conninfo_to_dict(conninfo)
    if not conf.settings.configured:
        conf.settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}})
        django.setup()
    named = {"NAME": given["dbname"], "USER": given["user"], "HOST": given["host"], "PORT": given.get("port", "")}
    before = db.connections["default"]
    connection = wrapper({**before.settings_dict, **named, "OPTIONS": {}})
    db.connections["default"] = connection
    try:
        yield connection
    finally:
        connection.close()
        db.connections["default"] = before
