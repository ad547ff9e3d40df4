"""A damaged state: an error that names it and the remedy, or what the state says now, and never the end of the interpreter.

`make check-native` runs this under AddressSanitizer and UBSan.
"""

from __future__ import annotations

import random
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa
import pytest

from tests.rules.oracle import Expectation, Row, Spec
from tests.rules.test_properties import build
from tests.streaming.state.compiled.buckets import NO_PAGES, PAGES, SEGMENTS, Life, schema, sizes, table
from waterclock.errors import StateMismatch
from waterclock.rules.engine import CLOSED, NO_WATERMARK
from waterclock.streaming.layout import ROW_ID
from waterclock.streaming.state.blobs import BlobStore
from waterclock.streaming.state.compiled import COMPILED, numbered

if not COMPILED:
    pytest.skip("the compiled engine was not built", allow_module_level=True)

from waterclock.streaming.state.compiled import _engine
from waterclock.streaming.state.compiled.engine import CompiledEngine
from waterclock.streaming.state.rows import Rows
from waterclock.streaming.state.states import States

SPECS = {
    "by sequence": Spec(
        wait=30,
        sequence=True,
        deliver=True,
        delays=(("ask", 7, "later", None, ()),),
        expects=(Expectation("pay", "ask", 8, "unpaid"), Expectation("pay", "ask", None, "broken", (), "amount > 2")),
    ),
    "by time": Spec(within=25, wait=0, quiets=((9, "quiet", None, ()), (20, "gone", "amount > 2", ()))),
    "carried, and ties": Spec(
        wait=0,
        tie=("amount", "type"),
        delays=(("ask", 7, "later", None, ("amount", "type")),),
        expects=(Expectation("pay", "ask", 8, "unpaid", carry=("number",)),),
        quiets=((9, "quiet", None, ("type", "amount")),),
    ),
}
ROWS = [
    Row("ab"[n % 2], 3 * n, f"e{n}", n // 2 + 1 + (n > 4), ("ask", "pay", "stop")[n % 3], 40 + n, 12 + n, n % 4)
    for n in range(12)
]
KEYS: dict[str | None, Any] = {"a": "a", "b": "b"}
TRIES = 200
TOLD = r"there should be|where a whole|in the middle|another form|behind it|there is not|rules"


def lived(spec: Spec) -> Life:
    """A bucket in which something of everything is held."""
    life = Life(build(spec))
    life.step(False, [table(ROWS, KEYS)], 2)
    return life


def engine(spec: Spec, held: int = 0) -> CompiledEngine:
    rows = Rows(schema(pa.string()).append(pa.field(ROW_ID, pa.string())))
    made = CompiledEngine(build(spec), rows, BlobStore({}), lambda wanted: None)
    made.load({"watermark": NO_WATERMARK, "counters": {}, "deadlines": [[], [], [], []]})
    return made


def damaged(blob: bytes, chance: random.Random) -> bytes:
    """With a bit turned, a byte of another kind, cut, or with something behind it."""
    place = chance.randrange(len(blob))
    ways = [
        blob[:place] + bytes([blob[place] ^ 1 << chance.randrange(8)]) + blob[place + 1 :],
        blob[:place] + bytes([chance.choice([0xC0, 0xCF, 0xDB, 0xDD, 0xC6, 0x9F, 0xD3, 0xFF])]) + blob[place + 1 :],
        blob[:place],
        blob + blob[:place],
    ]
    return chance.choice(ways)


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_a_damaged_state_of_a_key_is_told_or_taken(spec: Spec) -> None:
    chance = random.Random(5)
    with sizes(*NO_PAGES):
        whole = engine(spec)
        whole.step([table(ROWS, KEYS)], 2)
        states = whole.at_rest().states
    refused = 0
    for _ in range(TRIES):
        packed = states.packed.to_pylist()
        place = chance.randrange(len(packed))
        packed[place] = damaged(packed[place], chance)
        some = engine(spec)
        try:
            some.wake(States(states.keys, pa.array(packed, pa.binary()), states.held, states.rows))
        except StateMismatch as error:
            refused += "the stored state is damaged" in str(error)
            continue
        some.step([table(ROWS, KEYS)], 7)
        some.step([], CLOSED)
        some.at_rest()
    assert refused > TRIES / 2


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_a_damaged_chunk_of_deadlines_is_told_or_taken(spec: Spec) -> None:
    chance = random.Random(6)
    with sizes(*NO_PAGES):
        whole = engine(spec)
        whole.step([table(ROWS, KEYS)], 2)
        resting, frame = whole.at_rest().states, whole.frame()
    refused = 0
    for _ in range(TRIES):
        levels = [[(slot, list(packed)) for slot, packed in level] for level in frame["deadlines"]]
        packed = chance.choice([packed for level in levels for _, packed in level])
        packed[0] = damaged(packed[0], chance)
        some = engine(spec)
        some.load({**frame, "deadlines": levels})
        some.wake(resting)
        try:
            some.step([], CLOSED)
        except StateMismatch as error:
            refused += "the stored state is damaged" in str(error)
        except OSError:  # Arrow's, of the rows
            refused += 1
    assert refused > TRIES / 3


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_of_blobs_at_random_nothing_is_believed(spec: Spec) -> None:
    chance, some = random.Random(7), engine(spec)
    for _ in range(TRIES):
        blob = bytes(chance.choice([0x90, 0x94, 0x95, 0xC0, 0xA1, 1, chance.randrange(256)]) for _ in range(20))
        keys, packed = _engine.TextColumn(pa.array(["k"])), _engine.TextColumn(pa.array([blob]))
        with pytest.raises(ValueError, match=TOLD):
            some._engine.wake(keys, packed, pa.array([0], pa.int32()), 0, 0)
        with pytest.raises(ValueError, match=TOLD):
            some._engine.pass_chunk(blob, 0, 0, 0)


def test_a_text_is_never_longer_than_its_bytes() -> None:
    for packed in (msgpack.packb("x" * 9)[:-1], b"\xdb\xff\xff\xff\xffx", b"\xd9\x05xx"):
        with pytest.raises(ValueError, match="more bytes"):
            engine(SPECS["by time"])._engine.rows_in(b"\x92" + packed)


def test_a_text_that_is_no_utf_8_is_refused_where_it_is_read() -> None:
    deadline = (5, "quiet", "\ud800", 0, "e1")
    packed = msgpack.packb(([(0, deadline)], b""), unicode_errors="surrogatepass")
    with pytest.raises(ValueError, match="a text in UTF-8"):
        engine(SPECS["by time"])._engine.pass_chunk(packed, 0, 0, 0)


@pytest.mark.parametrize(
    ("name", "carried"),
    [("carried, and ties", [[1]]), ("carried, and ties", [{}]), ("carried, and ties", [1, 2]), ("by sequence", [])],
)
def test_what_is_carried_is_plain_and_as_many_values_as_the_rule_carries(name: str, carried: Any) -> None:
    packed = pa.array([msgpack.packb((None, ([(5, 0, "e1", carried)], [], []), None, None))], pa.binary())
    with pytest.raises(StateMismatch, match="the stored state is damaged"):
        engine(SPECS[name]).wake(States(pa.array(["a"]), packed, np.array([0], np.int32), None))


@pytest.mark.parametrize("ends", [[0, 99, 5], [3, -9, 5], [0, 2**31 - 1, 0]])
def test_a_column_whose_texts_lie_outside_of_it_is_refused(ends: list[int]) -> None:
    buffers = [None, pa.array(ends, pa.int32()).buffers()[1].slice(0, 4 * len(ends)), pa.py_buffer(b"abcde")]
    with pytest.raises(ValueError, match="column of texts"):
        _engine.TextColumn(pa.Array.from_buffers(pa.string(), 2, buffers))


def test_states_that_hold_more_rows_than_there_are_are_refused() -> None:
    packed = pa.array([msgpack.packb((3, None, None, None))])
    for held in ([1], [-1], [2**31 - 1]):
        with pytest.raises(StateMismatch, match=r"damaged \(states that hold more rows than there are\)"):
            engine(SPECS["by sequence"]).wake(
                States(pa.array(["a"]), packed, pa.array(held, pa.int32()).to_numpy(), None)
            )


def test_every_verb_takes_what_it_should_not_with_an_error() -> None:
    one = _engine.Engine(
        numbered.numbered(build(SPECS["by time"])), numbered.names_of(build(SPECS["by time"])), ["event"] * 7
    )
    texts, nothing = _engine.TextColumn(pa.array(["a", "b"])), _engine.TextColumn(pa.array([], pa.string()))
    with pytest.raises(ValueError, match="not of one length"):
        one.take(texts, texts, None, pa.array([1, 2]), None, None, None, None, None, None, 0)
    one.room(2)
    for times in (pa.array([1]), pa.array([1, None])):
        with pytest.raises(ValueError, match="a column of numbers with nulls, or of another length"):
            one.take(texts, texts, None, times, None, None, None, None, None, None, 0)
    with pytest.raises(ValueError, match="more deliveries than there are"):
        one.pass_chunk(msgpack.packb(([], b"")), 0, 1, 0)
    with pytest.raises(ValueError, match="fewer rows"):
        one.room(1)
    with pytest.raises(ValueError, match="not of one length"):
        one.deliveries(texts, nothing, pa.array([1, 2]))


@pytest.mark.parametrize("store", [PAGES, SEGMENTS], ids=["pages", "segments"])
def test_a_checkpoint_with_a_bit_turned_anywhere_never_ends_the_process(store: tuple[int, int, int]) -> None:
    chance = random.Random(8)
    with sizes(*store):
        whole = lived(SPECS["by sequence"])
        for _ in range(TRIES // 3):
            life = Life(whole.rules)
            life.stored, life.sizes = whole.stored, [*whole.sizes]
            life.blobs.update(whole.blobs)
            number = chance.choice(sorted(life.blobs))
            dict.__setitem__(life.blobs, number, damaged(life.blobs[number], chance))
            try:
                life.step(False, [table(ROWS, KEYS)], CLOSED)
            except (ValueError, OSError, StateMismatch, AssertionError, TypeError, KeyError):
                continue
