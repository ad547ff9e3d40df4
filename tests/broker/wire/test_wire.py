"""Produce and Fetch by hand against kio, every version: it writes and we read, we write and it reads, to the last byte."""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import io
import os
import struct
import uuid
from contextlib import suppress
from typing import Any

import pytest

kio_serial = pytest.importorskip("kio.serial")
pytest.importorskip("crc32c")
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from kio.schema.errors import ErrorCode  # noqa: E402

from waterclock.broker.log.producers import AbortedTransaction  # noqa: E402
from waterclock.broker.log.segment import Segment  # noqa: E402
from waterclock.broker.net.outgoing import Slice  # noqa: E402
from waterclock.broker.wire import fetch, produce  # noqa: E402
from waterclock.broker.wire.errors import Error  # noqa: E402
from waterclock.broker.wire.fetch import FetchedPartition, FetchPartition, FetchRequest  # noqa: E402
from waterclock.broker.wire.fields import as_uvarint, uvarint  # noqa: E402
from waterclock.broker.wire.produce import ProducedPartition, ProduceRequest  # noqa: E402

PRODUCE, FETCH = range(3, 14), range(4, 19)
int16, int32, int64 = (st.integers(-(2**n), 2**n - 1) for n in (15, 31, 63))
name = st.text("abcdefghij._-", min_size=1, max_size=200)
error = st.sampled_from(list(Error))
PREFIX = b"some bytes before the body"


def classes(api: str, version: int, kind: str) -> Any:
    return importlib.import_module(f"kio.schema.{api}.v{version}.{kind}")


def make(entity: Any, **values: Any) -> Any:
    fields = {field.name for field in dataclasses.fields(entity)}
    return entity(**{key: value for key, value in values.items() if key in fields})


def written(entity: Any) -> bytes:
    out = io.BytesIO()
    kio_serial.entity_writer(type(entity))(out, entity)
    return out.getvalue()


def answered(data: bytes, correlation: int, entity: Any) -> bytes:
    """The body of an answer whose size and header are right."""
    assert struct.unpack_from(">ii", data) == (len(data) - 4, correlation)
    head = 9 if entity.__header_schema__.__flexible__ else 8
    assert data[8:head] == b"\0" * (head - 8)
    return data[head:]


def ms(value: int) -> datetime.timedelta:
    return datetime.timedelta(milliseconds=value)


def topic_of(key: str, version: int, by_id: int) -> tuple[bytes, dict[str, Any]]:
    """A topic's bytes in our terms, and its fields in kio's."""
    topic_id = uuid.uuid5(uuid.NAMESPACE_DNS, key)
    if version >= by_id:
        return topic_id.bytes, {"topic_id": topic_id}
    return key.encode(), {"name": key, "topic": key, "topic_name": key}


# Produce


@pytest.mark.parametrize("version", PRODUCE)
@settings(max_examples=30)
@given(
    st.none() | st.text(max_size=300), int16, int32,
    st.lists(st.tuples(name, st.lists(st.tuples(int32, st.none() | st.binary(max_size=300)), max_size=3)), max_size=3),
)  # fmt: skip
def test_a_produce_request_of_kio_is_read_as_it_was_meant(
    version: int, transactional_id: str | None, acks: int, timeout_ms: int, topics: list[Any]
) -> None:
    kio = classes("produce", version, "request")
    ours, theirs = [], []
    for key, rows in topics:
        own, fields = topic_of(key, version, produce.BY_ID)
        ours.append((own, [(partition, bytes(data or b"")) for partition, data in rows]))
        data = tuple(kio.PartitionProduceData(index=p, records=d) for p, d in rows)
        theirs.append(make(kio.TopicProduceData, **fields, partition_data=data))
    body = written(
        make(kio.ProduceRequest, transactional_id=transactional_id, acks=acks, timeout=ms(timeout_ms),
             topic_data=tuple(theirs))
    )  # fmt: skip
    read = produce.read(memoryview(PREFIX + body), len(PREFIX), version)
    assert read == ProduceRequest(transactional_id, acks, timeout_ms, ours)


APPENDED = st.builds(
    ProducedPartition, int32, error, int64, st.integers(-1, 2**41), int64, st.none() | st.text(max_size=200),
    st.lists(int32, max_size=3).map(tuple),
)  # fmt: skip


@pytest.mark.parametrize("version", PRODUCE)
@settings(max_examples=30)
@given(int32, st.lists(st.tuples(name, st.lists(APPENDED, max_size=3)), max_size=3))
def test_an_answer_to_produce_is_kios_to_the_last_byte(version: int, correlation: int, topics: list[Any]) -> None:
    kio = classes("produce", version, "response")
    ours, theirs = [], []
    for key, rows in topics:
        own, fields = topic_of(key, version, produce.BY_ID)
        ours.append((own, rows))
        parts = tuple(
            make(
                kio.PartitionProduceResponse, index=r.partition, error_code=ErrorCode(r.error), base_offset=r.base,
                log_append_time=moment(r.append_time_ms), log_start_offset=r.start,
                record_errors=blamed(kio, r), error_message=r.message,
            )
            for r in rows
        )  # fmt: skip
        theirs.append(make(kio.TopicProduceResponse, **fields, partition_responses=parts))
    entity = make(kio.ProduceResponse, responses=tuple(theirs), throttle_time=ms(0))
    body = answered(produce.answer(correlation, version, ours), correlation, entity)
    assert kio_serial.entity_reader(type(entity))(body, 0) == (entity, len(body))
    assert body == written(entity)


def blamed(kio: Any, row: ProducedPartition) -> tuple[Any, ...]:
    """The records to blame, where the version tells them."""
    if not hasattr(kio, "BatchIndexAndErrorMessage"):
        return ()
    return tuple(make(kio.BatchIndexAndErrorMessage, batch_index=n, batch_index_error_message=None) for n in row.wrong)


def moment(at_ms: int) -> datetime.datetime | None:
    if at_ms < 0:
        return None
    return datetime.datetime.fromtimestamp(at_ms // 1000, datetime.UTC) + ms(at_ms % 1000)


# Fetch


@pytest.mark.parametrize("version", FETCH)
@settings(max_examples=30)
@given(
    st.tuples(int32, int32, int32, int32, st.booleans(), int32, int32),
    st.lists(
        st.tuples(name, st.lists(st.builds(FetchPartition, int32, int32, int64, int32, int64), max_size=3)), max_size=3
    ),
    st.tuples(st.lists(st.tuples(name, st.lists(int32, max_size=3)), max_size=2), st.text(max_size=200), st.booleans()),
)
def test_a_fetch_request_of_kio_is_read_as_it_was_meant(
    version: int, head: tuple[Any, ...], topics: list[Any], rest: tuple[list[Any], str, bool]
) -> None:
    kio = classes("fetch", version, "request")
    replica, wait_ms, least, most, committed, session, epoch = head
    forgotten, rack, tagged = rest
    ours, theirs = [], []
    for key, rows in topics:
        own, fields = topic_of(key, version, fetch.BY_ID)
        absent: dict[str, int] = {}
        if version < 9:
            absent["leader_epoch"] = -1
        if version < 5:
            absent["start"] = -1
        ours.append((own, [row._replace(**absent) for row in rows]))
        parts = tuple(partition(kio, row, tagged) for row in rows)
        theirs.append(make(kio.FetchTopic, **fields, partitions=parts))
    values = {
        "replica_id": replica, "max_wait": ms(wait_ms), "min_bytes": least, "max_bytes": most,
        "isolation_level": int(committed), "session_id": session, "session_epoch": epoch, "topics": tuple(theirs),
        "rack_id": rack, "cluster_id": "a cluster" if tagged else None,
    }  # fmt: skip
    if version >= 7:
        values["forgotten_topics_data"] = tuple(
            make(kio.ForgottenTopic, **topic_of(key, version, fetch.BY_ID)[1], partitions=tuple(partitions))
            for key, partitions in forgotten
        )
    if version >= fetch.NO_REPLICA_FIELD:
        values["replica_state"] = kio.ReplicaState(replica_id=replica, replica_epoch=7)
    read = fetch.read(memoryview(PREFIX + written(make(kio.FetchRequest, **values))), len(PREFIX), version)
    reply = (session, epoch) if version >= 7 else (0, -1)
    assert read == FetchRequest(replica, wait_ms, least, most, committed, *reply, ours)  # type: ignore[call-arg]


def partition(kio: Any, row: FetchPartition, tagged: bool) -> Any:
    extra = {"replica_directory_id": uuid.UUID(int=5), "high_watermark": 9} if tagged else {}
    return make(
        kio.FetchPartition, partition=row.partition, current_leader_epoch=row.leader_epoch, fetch_offset=row.offset,
        last_fetched_epoch=3, log_start_offset=row.start, partition_max_bytes=row.limit, **extra,
    )  # fmt: skip


@pytest.fixture(scope="module")
def segment(tmp_path_factory: pytest.TempPathFactory) -> Segment:
    segment = Segment(str(tmp_path_factory.mktemp("wire")), 0)
    os.pwrite(segment.fd, os.urandom(100 << 10), 0)
    return segment


ABORTED = st.none() | st.lists(st.builds(AbortedTransaction, int64, int64, int64), max_size=3)
SIZES = st.sampled_from([0, 1, 100, fetch.SMALL, fetch.SMALL + 1, 80 << 10])
FOUND = st.tuples(
    st.builds(lambda *row: FetchedPartition(*row), int32, error, int64, int64, int64, ABORTED),
    st.none() | st.tuples(st.integers(0, 20 << 10), SIZES),
)


@pytest.mark.parametrize("version", FETCH)
@settings(max_examples=30)
@given(int32, error, st.lists(st.tuples(name, st.lists(FOUND, max_size=3)), max_size=3))
def test_an_answer_to_fetch_is_kios_to_the_last_byte(
    version: int, segment: Segment, correlation: int, top: Error, topics: list[Any]
) -> None:
    kio = classes("fetch", version, "response")
    ours, theirs = [], []
    for key, rows in topics:
        own, fields = topic_of(key, version, fetch.BY_ID)
        found = [row._replace(records=Slice(segment, *at) if at is not None else None) for row, at in rows]
        ours.append((own, found))
        theirs.append(make(kio.FetchableTopicResponse, **fields, partitions=tuple(data(kio, row) for row in found)))
    reply = {"error_code": ErrorCode(top), "session_id": 0}
    entity = make(kio.FetchResponse, throttle_time=ms(0), responses=tuple(theirs), **reply)
    parts = fetch.answer(correlation, version, ours, top)
    sent = b"".join(part.read() if isinstance(part, Slice) else part for part in parts)
    body = answered(sent, correlation, entity)
    assert kio_serial.entity_reader(type(entity))(body, 0) == (entity, len(body))
    assert body == written(entity)


def data(kio: Any, row: FetchedPartition) -> Any:
    rows = None
    if row.aborted is not None:
        rows = tuple(kio.AbortedTransaction(producer_id=a.producer_id, first_offset=a.first) for a in row.aborted)
    return make(
        kio.PartitionData, partition_index=row.partition, error_code=ErrorCode(row.error), high_watermark=row.high,
        last_stable_offset=row.stable, log_start_offset=row.start, aborted_transactions=rows, preferred_read_replica=-1,
        records=row.records.read() if row.records is not None else b"",
    )  # fmt: skip


def test_records_of_more_than_a_packet_are_not_copied(segment: Segment) -> None:
    rows = [
        (
            b"t",
            [
                FetchedPartition(0, Error.NONE, records=Slice(segment, 0, size))
                for size in (fetch.SMALL, fetch.SMALL + 1)
            ],
        )
    ]
    assert [part.size for part in fetch.answer(1, 12, rows) if isinstance(part, Slice)] == [fetch.SMALL + 1]


# What nobody meant


def requests() -> list[tuple[Any, int, bytes]]:
    """A good request of each version of both."""
    rows = []
    for version in PRODUCE:
        kio = classes("produce", version, "request")
        part = kio.PartitionProduceData(index=1, records=b"x" * 80)
        topic = make(kio.TopicProduceData, **topic_of("t", version, produce.BY_ID)[1], partition_data=(part,))
        entity = make(kio.ProduceRequest, transactional_id="id", acks=1, timeout=ms(5), topic_data=(topic,))
        rows.append((produce.read, version, written(entity)))
    for version in FETCH:
        kio = classes("fetch", version, "request")
        parts = (partition(kio, FetchPartition(1, 2, 3, 4), True),)
        topic = make(kio.FetchTopic, **topic_of("t", version, fetch.BY_ID)[1], partitions=parts)
        forgotten = {"forgotten_topics_data": ()} if version >= 7 else {}
        entity = make(
            kio.FetchRequest, replica_id=-1, max_wait=ms(5), min_bytes=1, topics=(topic,), rack_id="r", **forgotten
        )
        rows.append((fetch.read, version, written(entity)))
    return rows


REFUSED = (IndexError, ValueError, struct.error)


@pytest.mark.parametrize(("read", "version", "body"), requests(), ids=lambda v: str(v) if type(v) is int else "")
def test_a_request_that_is_cut_off_is_refused_wherever_it_is_cut(read: Any, version: int, body: bytes) -> None:
    read(memoryview(body), 0, version)
    for size in range(len(body)):
        with pytest.raises(REFUSED):
            read(memoryview(body)[:size], 0, version)


@pytest.mark.parametrize(("read", "version", "body"), requests(), ids=lambda v: str(v) if type(v) is int else "")
@settings(max_examples=30)
@given(st.data())
def test_any_bytes_are_read_or_refused(read: Any, version: int, body: bytes, data: st.DataObject) -> None:
    broken = bytearray(body)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(body) - 1))
        broken[place : place + 4] = data.draw(
            st.sampled_from([b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80", b"\0"])
        )
    with suppress(*REFUSED):
        read(memoryview(broken), 0, version)


@given(st.integers(0, 2**35 - 1))
def test_a_varint_comes_back(value: int) -> None:
    raw = as_uvarint(value)
    assert uvarint(raw, 0) == (value, len(raw))


def test_a_varint_of_six_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="more than five bytes"):
        uvarint(b"\xff" * 6, 0)


def test_the_versions_here_are_those_that_are_served() -> None:
    from waterclock.broker.api import fetch as fetch_api
    from waterclock.broker.api import produce as produce_api

    assert list(range(produce_api.VERSIONS[0], produce_api.VERSIONS[1] + 1)) == list(PRODUCE)
    assert list(range(fetch_api.VERSIONS[0], fetch_api.VERSIONS[1] + 1)) == list(FETCH)
