"""How Kafka's messages are written and read: functions made of what messages.txt says of their fields.

It shares nothing with the product, whose broker has kio for it.
"""

from __future__ import annotations

import re
import struct
from collections import namedtuple
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

ONES = [bytes([one]) for one in range(0x80)]
FORMS: dict[str, struct.Struct] = {}
TOKENS = re.compile(r"(\w+)([\[(]|:\w|\*\w)|[\])]")
NUMBERS = ("b", "h", "i", "q")
Field = tuple[str, str, list[Any]]  # its name; its letter, *letter, [ or (; the fields of its structs
END: Field = ("", "", [])


def text(value: str | None) -> bytes:
    return b"\xff\xff" if value is None else struct.pack(">h", len(data := value.encode())) + data


def data_of(value: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if value is None else struct.pack(">i", len(value)) + value


def array(rows: list[bytes] | None) -> bytes:
    return b"\xff\xff\xff\xff" if rows is None else struct.pack(">i", len(rows)) + b"".join(rows)


def uvarint(value: int) -> bytes:
    if 0 <= value < 0x80:  # mostly
        return ONES[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    return uvarint((value << 1) ^ (value >> 63))


def compact(value: str | bytes | None) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return b"\0" if data is None else uvarint(len(data) + 1) + data


def compact_array(rows: list[bytes] | None) -> bytes:
    return b"\0" if rows is None else uvarint(len(rows) + 1) + b"".join(rows)


def zigzag(data: bytes, at: int) -> tuple[int, int]:
    """A signed number at `at`, and where the next value is."""
    if (one := data[at]) < 0x80:  # mostly
        return (one >> 1) ^ -(one & 1), at + 1
    value = shift = 0
    while True:
        one = data[at]
        at += 1
        value |= (one & 0x7F) << shift
        if one < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def by_topic(rows: Iterable[tuple[str, Any]]) -> list[tuple[str, list[Any]]]:
    """Topics, each with its rows."""
    topics: dict[str, list[Any]] = {}
    for topic, row in rows:
        topics.setdefault(topic, []).append(row)
    return list(topics.items())


class Answer:
    """The body of an answer, read from its beginning."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def run(self, form: struct.Struct) -> tuple[Any, ...]:
        self.at += form.size
        return form.unpack_from(self.data, self.at - form.size)

    def cut(self, size: int) -> bytes:
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, form: str = "i") -> Any:
        return self.run(FORMS.get(form) or FORMS.setdefault(form, struct.Struct(">" + form)))[0]

    def text(self) -> str | None:
        size = self.number("h")
        return None if size < 0 else self.cut(size).decode()

    def bytes(self) -> bytes | None:
        size = self.number()
        return None if size < 0 else self.cut(size)

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            one = self.data[self.at]
            self.at += 1
            value |= (one & 0x7F) << shift
            if one < 0x80:
                return value
            shift += 7

    def compact(self) -> bytes | None:
        size = self.uvarint() - 1
        return None if size < 0 else self.cut(size)

    def compact_text(self) -> str | None:
        found = self.compact()
        return None if found is None else found.decode()

    def tagged(self, found: Any) -> Any:
        """What was found, without the tags behind it."""
        for _ in range(self.uvarint()):
            self.uvarint()
            self.cut(self.uvarint())
        return found


class Message(NamedTuple):
    """`write` takes the values of what is asked, in their order, structs as tuples; `read` gives structs with names."""

    key: int
    version: int
    is_flexible: bool
    write: Callable[..., bytes]
    read: Callable[[Answer], Any]

    def answer(self, data: bytes) -> Any:
        """What stands behind an answer's number, and the tags of its head."""
        made = Answer(data)
        return self.read(made.tagged(made) if self.is_flexible else made)


@cache
def message(name: str) -> Message:
    text = (Path(__file__).parent / "messages.txt").read_text()
    found = re.search(rf"^{re.escape(name)} (\S+) (\d+)(\+?)\n> (.*)\n< (.*)", text, re.MULTILINE)
    assert found is not None, name
    key, version, plus, asked, told = found.groups()
    fields, names = (given := _fields(asked)), ", ".join(f"{name}_0" for name, *_ in given)
    write = eval(f"lambda {names}: {_written(fields, bool(plus), bool(plus))}", globals())
    kinds: dict[str, Any] = {}
    read = eval(f"lambda a: {_read(_fields(told), bool(plus), kinds)}", kinds | {"forms": FORMS})
    return Message(int(key), int(version), bool(plus), write, read)


def _fields(words: str) -> list[Field]:
    found: list[list[Field]] = [[]]
    for one in TOKENS.finditer(words):
        name, kind = one.groups()
        if name is None:
            found.pop()
            continue
        within: list[Field] = []
        found[-1].append((name, kind.lstrip(":"), within))
        if kind in "[(":
            found.append(within)
    return found[0]


def _written(fields: list[Field], is_flexible: bool, tags: bool, depth: int = 0) -> str:
    """An expression: the bytes of these, whose names have the depth behind them."""
    text, array = ("compact", "compact_array") if is_flexible else ("text", "array")
    words = {"u": "", "s": text, "d": "compact" if is_flexible else "data_of"}
    parts, form, run = list[str](), "", list[str]()
    for name, kind, within in [*fields, END]:
        here = f"{name}_{depth}"
        if kind in NUMBERS:
            form, run = form + kind, [*run, here]
            continue
        if run:
            parts.append(f"struct.pack('>{form}', {', '.join(run)})")
            form, run = "", []
        if kind in words:
            parts.append(f"{words[kind]}({here})")
        elif kind:
            rows = within or [("one", kind[1:], [])]
            names = ", ".join(f"{row[0]}_{depth + 1}" for row in rows) + ("," if within else "")
            one = _written(rows, is_flexible, is_flexible and bool(within), depth + 1)
            parts.append(f"{array}(None if {here} is None else [{one} for {names} in {here}])")
    return " + ".join([*parts, *(["b'\\0'"] if tags else [])])


def _read(fields: list[Field], is_flexible: bool, kinds: dict[str, Any]) -> str:
    """An expression: these of the answer `a`; `kinds` are the structs' names in it."""
    name = f"kind_{len(kinds)}"
    kinds[name] = namedtuple(name, [field for field, *_ in fields])  # type: ignore[misc]
    several = f"for _ in range(a.{'uvarint() - 1' if is_flexible else 'number()'})"
    words = {"s": "a.compact_text()", "d": "a.compact()"} if is_flexible else {"s": "a.text()", "d": "a.bytes()"}
    words |= {"u": "a.cut(16)", **{kind: f"a.number('{kind}')" for kind in NUMBERS}}
    parts, form = list[str](), ""
    for _, kind, within in [*fields, END]:
        if kind in NUMBERS:
            form += kind
            continue
        if form:
            FORMS.setdefault(form, struct.Struct(">" + form))
            parts.append(f"*a.run(forms['{form}'])")
            form = ""
        if kind in words:
            parts.append(words[kind])
        elif kind == "(":
            parts.append(f"None if a.number('b') < 0 else {_read(within, is_flexible, kinds)}")
        elif kind:
            one = _read(within, is_flexible, kinds) if within else words[kind[1:]]
            parts.append(f"[{one} {several}]")
    made = f"{name}({', '.join(parts)})"
    return f"a.tagged({made})" if is_flexible else made
