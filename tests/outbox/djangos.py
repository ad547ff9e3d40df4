"""Django's connection to a database of the tests', without a project."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import django
import psycopg
import pymysql
from django import conf, db  # not what they hold: pytest looks at each name of a module, and settings are not there yet

from tests.outbox.taking import PostgresShop, Shop


@contextmanager
def connected(shop: Shop) -> Iterator[Any]:
    """The connection that `transaction.atomic` without a name takes."""
    if not conf.settings.configured:
        conf.settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}})
        django.setup()
    before = db.connections["default"]
    wrapper, named = _backend(shop)
    connection = wrapper({**before.settings_dict, **named})
    db.connections["default"] = connection
    try:
        yield connection
    finally:
        connection.close()
        db.connections["default"] = before


def _backend(shop: Shop) -> tuple[type[Any], dict[str, Any]]:
    """Django's wrapper, and the settings that name the database."""
    if isinstance(shop, PostgresShop):
        from django.db.backends.postgresql.base import DatabaseWrapper as Postgres

        given = psycopg.conninfo.conninfo_to_dict(shop.conninfo)
        named = {"NAME": given["dbname"], "USER": given["user"], "HOST": given["host"], "PORT": given.get("port", "")}
        return Postgres, {**named, "OPTIONS": {}}
    pymysql.install_as_MySQLdb()  # as Django's users of PyMySQL do
    from django.db.backends.mysql.base import DatabaseWrapper as MySql

    parts = urlsplit(shop.url)
    named = {"NAME": parts.path.strip("/"), "USER": "root", "HOST": "127.0.0.1", "PORT": str(parts.port)}
    return MySql, {**named, "OPTIONS": {"ssl_disabled": True}}
