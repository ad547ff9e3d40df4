"""The simulation's own table of Kafka's messages is Kafka's: what is written by it kio reads, which has Kafka's schemas."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kio")

from kio.serial import entity_reader

from tests.simulation.kafka import encoding
from tests.simulation.kafka.encoding import Answer, Field, message

TABLE = (Path(encoding.__file__).parent / "messages.txt").read_text()
MESSAGES = re.findall(r"^(\S+) \d+ \d+\+?\n> (.*)\n< (.*)", TABLE, re.MULTILINE)
SAMPLES = {
    **dict.fromkeys("bhiq", 1),
    "s": "text",
    "d": b"bytes",
    "u": bytes(15) + b"\1",
    "*i": [1, 2],
    "*s": ["a", "b"],
}


def values(fields: list[Field]) -> tuple[Any, ...]:
    """Of each field some value; of structs two."""
    return tuple([values(within)] * 2 if within else SAMPLES[kind] for _, kind, within in fields)


@pytest.mark.parametrize(("name", "asked", "told"), MESSAGES, ids=[name for name, *_ in MESSAGES])
def test_what_is_written_by_the_table_kio_reads(name: str, asked: str, told: str) -> None:
    one, (api, _, _) = message(name), name.partition(".")
    place, title = f"kio.schema.{api}.v{one.version}", "".join(word.title() for word in api.split("_"))
    kind = getattr(import_module(f"{place}.request"), f"{title}Request")
    assert (one.key, one.is_flexible) == (kind.__api_key__, kind.__flexible__)
    data = one.write(*values(encoding._fields(asked)))
    assert entity_reader(kind)(data, 0)[1] == len(data)
    if "(" not in told:
        fields = encoding._fields(told)
        names = ", ".join(f"{field}_0" for field, *_ in fields)
        written = encoding._written(fields, one.is_flexible, one.is_flexible)
        data = eval(f"lambda {names}: {written}", vars(encoding))(*values(fields))
        assert entity_reader(getattr(import_module(f"{place}.response"), f"{title}Response"))(data, 0)[1] == len(data)
        assert one.read(Answer(data)) == values(fields)


def test_what_stands_behind_a_tag_is_read() -> None:
    # a refused topic of create_topics has one, and what came behind it was read a byte too early
    answer = Answer(b"\1\5\3abc\7")
    assert (answer.tagged("found"), answer.uvarint()) == ("found", 7)
