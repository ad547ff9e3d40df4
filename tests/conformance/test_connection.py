"""What a connection bears: order, pieces, and malformed requests."""

from __future__ import annotations

import struct

import pytest

from tests.conformance.batches import batch
from tests.conformance.dialogue import Dialogue, fetch_fields
from tests.conformance.settings import SETTINGS
from tests.conformance.wire import KEYS, Closed, Wire

METADATA = KEYS["metadata"]


def test_a_request_may_come_in_single_bytes(wire: Wire) -> None:
    frame = wire.encoded("api_versions", 0)
    for byte in struct.pack(">i", len(frame)) + frame:
        wire.send_bytes(bytes([byte]))
    assert struct.unpack(">ih", wire.receive_frame()[:6]) == (1, 0)


def test_two_requests_in_one_piece_are_two_answers_in_order(wire: Wire) -> None:
    frames = [wire.encoded("api_versions", 0), wire.encoded("metadata", 1)]
    wire.send_bytes(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))
    assert [struct.unpack(">i", wire.receive_frame()[:4])[0] for _ in frames] == [1, 2]


def test_a_quick_request_behind_a_waiting_one_is_answered_after_it(wire: Wire, topic: str) -> None:
    wire.send("fetch", 12, **fetch_fields(topic, 0, max_wait=300))
    wire.send("api_versions", 0)
    assert wire.receive("fetch", 12).responses[0].partitions[0].records in (None, b"")
    assert wire.receive("api_versions", 0).error_code == 0


def test_a_waiting_request_holds_up_no_other_connection(wire: Wire, bootstrap: str, topic: str) -> None:
    with Wire(bootstrap) as patient:
        patient.send("fetch", 12, **fetch_fields(topic, 0, max_wait=20_000))
        assert Dialogue(wire).produce(topic, batch(b"a")).error_code == 0
        assert patient.receive("fetch", 12).responses[0].partitions[0].high_watermark == 1


@pytest.mark.parametrize("client_id", [None, "", "x" * 300, "tränen"])
def test_a_client_may_call_itself_anything(bootstrap: str, client_id: str | None) -> None:
    with Wire(bootstrap, client_id) as connection:
        assert connection.ask("metadata", 12, topics=[]).topics == ()
        assert connection.ask("metadata", 1, topics=[]).topics == ()


def test_tagged_fields_nobody_knows_are_passed_over(wire: Wire) -> None:
    # ApiVersions 3 with a tag 77 of three bytes behind its two strings, and one in the request's header.
    header = struct.pack(">hhih", KEYS["api_versions"], 3, 5, -1) + b"\x01\x4d\x03abc"
    wire.send_frame(header + b"\x02a\x021" + b"\x01\x4d\x03abc")
    assert struct.unpack(">ih", wire.receive_frame()[:6]) == (5, 0)


@pytest.mark.parametrize(
    "size", [0, -1, -(2**31), int(SETTINGS["socket.request.max.bytes"]) + 1, 2**31 - 1], ids=lambda size: f"{size}"
)
def test_a_size_that_cannot_be_closes_the_connection(wire: Wire, size: int) -> None:
    wire.send_bytes(struct.pack(">i", size) + b"\0" * 8)
    with pytest.raises(Closed):
        wire.receive_frame()


def test_a_request_as_large_as_the_limit_is_read(wire: Wire) -> None:
    limit = int(SETTINGS["socket.request.max.bytes"])
    head = struct.pack(">hhih", KEYS["api_versions"], 3, 9, -1) + b"\0" + b"\x02a\x021"
    tag = b"\x01\x4d" + varint(limit - len(head) - 6)
    frame = head + tag + b"x" * (limit - len(head) - len(tag))
    wire.send_frame(frame)
    assert struct.unpack(">ih", wire.receive_frame()[:6]) == (9, 0)


def varint(number: int) -> bytes:
    """Four bytes of an unsigned varint."""
    return bytes([number & 127 | 128, number >> 7 & 127 | 128, number >> 14 & 127 | 128, number >> 21])


MALFORMED = {
    "a header cut off": struct.pack(">hh", METADATA, 1),
    "a client id longer than the request": struct.pack(">hhih", METADATA, 1, 1, 500),
    "a body cut off": struct.pack(">hhihi", METADATA, 1, 1, -1, 5),
    "an array longer than the request": struct.pack(">hhihi", METADATA, 1, 1, -1, 2**31 - 1),
    "a string of negative length": struct.pack(">hhihih", METADATA, 1, 1, -1, 1, -7),
    "a varint without end": struct.pack(">hhih", METADATA, 12, 1, -1) + b"\0" + b"\xff" * 12,
    "bytes that are not UTF-8 in an array cut off": struct.pack(">hhihih", METADATA, 1, 1, -1, 2, 2) + b"\xff\xfe",
}


@pytest.mark.parametrize("frame", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_request_closes_its_connection(wire: Wire, frame: bytes) -> None:
    wire.send_frame(frame)
    with pytest.raises(Closed):
        wire.receive_frame()


def test_a_malformed_request_closes_no_other_connection(wire: Wire, bootstrap: str) -> None:
    with Wire(bootstrap) as rude:
        rude.send_frame(b"\xff" * 100)
        with pytest.raises(Closed):
            rude.receive_frame()
    assert wire.ask("api_versions", 0).error_code == 0


def test_a_connection_that_ends_within_a_request_harms_nobody(wire: Wire, bootstrap: str) -> None:
    with Wire(bootstrap) as short:
        short.send_bytes(struct.pack(">i", 1000) + b"abc")
    assert wire.ask("api_versions", 0).error_code == 0


def test_bytes_behind_a_request_are_passed_over(wire: Wire) -> None:
    # Apache Kafka reads what it knows and does not look at the rest of the frame.
    wire.send_frame(wire.encoded("metadata", 1, topics=[]) + b"more")
    assert struct.unpack(">i", wire.receive_frame()[:4]) == (1,)
