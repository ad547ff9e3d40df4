"""Every character of every character set, against what the server itself makes of its bytes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cdc.mariadb import MariaServer, MariaSource
from waterclock.cdc.mysql.columns import decoder

pytestmark = pytest.mark.mariadb
SINGLE = ["ascii", "latin1", "latin2", "latin5", "latin7", "greek", "hebrew", "cp1250", "cp1251", "cp1256", "cp1257",
          "cp850", "cp852", "cp866", "koi8r", "koi8u", "tis620"]  # fmt: skip
DOUBLE = ["gbk", "gb2312", "big5", "ujis", "sjis", "cp932", "euckr", "ucs2", "utf16", "utf16le"]
NONE = ("?", "\ufffd")  # what the server shows where it knows no character: it is refused, or our codec knows one
BYTES = {1: "seq_0_to_255", 2: "seq_0_to_65535", 3: "seq_9413025_to_9436926"}  # of three bytes: from 8fa1a1 to 8ffefe


def sequences(mariadb: MariaServer, charset: str, size: int) -> Iterator[tuple[bytes, str]]:
    """Every sequence of bytes that the server takes for one character, and the character; "?" where it knows none."""
    raw = f"unhex(lpad(hex(seq), {2 * size}, '0'))"
    taken = f"convert({raw} using {charset})"
    query = f"select {raw}, hex(convert({taken} using utf8mb4)), char_length({taken})"
    kept = f"{query}, hex({taken}) = hex({raw}) from {BYTES[size]}"
    for found, text, length, same in mariadb.run("use mysql", "set sql_mode = ''", kept):
        if same and length == 1:
            shown = bytes.fromhex(text).decode("utf-8", "replace")
            yield found, shown if len(shown) == 1 else "?"  # half a character is none


@pytest.mark.parametrize(
    ("charset", "size"), [*((name, 1) for name in SINGLE), *((name, 2) for name in DOUBLE), ("ujis", 3)]
)
def test_every_character_is_the_one_that_the_server_shows(charset: str, size: int, mariadb: MariaServer) -> None:
    decode, wrong, right = decoder(charset), [], 0
    for raw, shown in sequences(mariadb, charset, size):
        try:
            found = decode(raw)
        except UnicodeError:
            found = "?"  # refused by name, where the server makes a question mark of it
        if found != shown and shown not in NONE:
            wrong.append((raw.hex(), shown, found))
        right += found == shown != "?"
    assert wrong == []
    assert right > (100 if size == 1 else 5000)


@pytest.mark.parametrize(("charset", "count"), [("euckr", 17_048), ("big5", 13_710)])
def test_a_whole_character_set_goes_through_the_capture(charset: str, count: int, source: MariaSource) -> None:
    known = [(raw, shown) for raw, shown in sequences(source.server, charset, 2) if shown not in NONE or raw == b"?"]
    source.run(f"create table t (id int primary key, c varchar(9) character set {charset})")
    with source.server.connection(database=source.name) as connection, connection.cursor() as cursor:
        for start in range(0, len(known), 5000):
            some = enumerate(known[start : start + 5000], start)
            cursor.execute("insert into t values " + ", ".join(f"({n}, x'{raw.hex()}')" for n, (raw, _) in some))
    found = [change.values()["c"] for change in source.changes()]
    assert found == [shown for _, shown in known]
    assert len(found) == count
