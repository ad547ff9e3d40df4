"""A small Kafka client for simulated processes: its own encoding, in versions without tagged fields where there are any.

It shares nothing with the product: a mistake of the product's encoder is not read back by the same mistake.
"""

from __future__ import annotations

import asyncio
import struct

from crc32c import crc32c

PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH = 0, 1, 2, 3, 8, 9
FIND, JOIN, HEARTBEAT, LEAVE, SYNC, CREATE_TOPICS = 10, 11, 12, 13, 14, 19
DELETE_RECORDS, INIT, ADD_PARTITIONS, ADD_OFFSETS, END, TXN_OFFSETS = 21, 22, 24, 25, 26, 28
HEAD = struct.Struct(">qiibIhiqqqhii")
NONE, OUT_OF_RANGE, UNKNOWN_TOPIC, TIMED_OUT = 0, 1, 3, 7
LOAD, NOT_AVAILABLE, NOT_COORDINATOR = 14, 15, 16
ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCING = 22, 25, 27
OUT_OF_ORDER, DUPLICATE, BAD_EPOCH, BAD_STATE, BAD_MAPPING = 45, 46, 47, 48, 49
CONCURRENT, STORAGE, UNKNOWN_PRODUCER, FENCED, UNSTABLE = 51, 56, 59, 90, 88
MEMBER_ID_REQUIRED = 79


class Gone(Exception):
    """The connection is over, or no answer came in time: what was asked may be done or not."""


# Writing


def text(value):
    if value is None:
        return b"\xff\xff"
    data = value.encode()
    return struct.pack(">h", len(data)) + data


def data_of(value):
    return struct.pack(">i", len(value)) + value


def array(rows):
    rows = list(rows)
    return struct.pack(">i", len(rows)) + b"".join(rows)


def uvarint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value):
    return uvarint((value << 1) ^ (value >> 63))


def compact(value):
    data = value.encode() if isinstance(value, str) else value
    return b"\0" if data is None else uvarint(len(data) + 1) + data


def batch(records, now_ms, producer_id=-1, epoch=-1, sequence=-1, transactional=False):
    """A record batch of [(key, value)]."""
    body = bytearray()
    for number, (key, value) in enumerate(records):
        row = b"\0" + varint(0) + varint(number) + varint(len(key)) + key + varint(len(value)) + value + b"\0"
        body += varint(len(row)) + row
    count = len(records)
    tail = struct.pack(
        ">hiqqqhii", 0x10 if transactional else 0, count - 1, now_ms, now_ms, producer_id, epoch, sequence, count
    ) + bytes(body)  # fmt: skip
    return struct.pack(">qiibI", 0, len(tail) + 9, -1, 2, crc32c(tail)) + tail


# Reading


class Answer:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        form = struct.Struct(">" + form)
        found = form.unpack_from(self.data, self.at)
        self.at += form.size
        return found if len(found) > 1 else found[0]

    def text(self):
        size = self.take("h")
        if size < 0:
            return None
        found = self.data[self.at : self.at + size].decode()
        self.at += size
        return found

    def bytes(self):
        size = self.take("i")
        if size < 0:
            return b""
        found = self.data[self.at : self.at + size]
        self.at += size
        return found

    def uvarint(self):
        value = shift = 0
        while True:
            one = self.data[self.at]
            self.at += 1
            value |= (one & 0x7F) << shift
            if one < 0x80:
                return value
            shift += 7

    def compact(self):
        size = self.uvarint() - 1
        if size < 0:
            return None
        found = self.data[self.at : self.at + size]
        self.at += size
        return found

    def tags(self):
        for _ in range(self.uvarint()):
            self.uvarint()
            self.at += self.uvarint()


def zigzag(data, at):
    value = shift = 0
    while True:
        one = data[at]
        at += 1
        value |= (one & 0x7F) << shift
        if one < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


class Batch:
    """What a reader gets; `values` are of records, `commits` of a marker."""

    __slots__ = (
        "base",
        "commits",
        "control",
        "crc_ok",
        "epoch",
        "last",
        "producer",
        "sequence",
        "transactional",
        "values",
    )

    def __init__(self, data, at):
        (
            self.base, length, _, _, crc, attributes, delta, _, _, self.producer, self.epoch, self.sequence, count
        ) = HEAD.unpack_from(data, at)  # fmt: skip
        end = at + 12 + length
        self.crc_ok = crc32c(data[at + 21 : end]) == crc
        self.last = self.base + delta
        self.transactional, self.control = bool(attributes & 0x10), bool(attributes & 0x20)
        self.values, self.commits = [], None
        at += HEAD.size
        for _ in range(count):
            size, at = zigzag(data, at)
            row_end = at + size
            _, at = zigzag(data, at + 1)
            offset, at = zigzag(data, at)
            key_size, at = zigzag(data, at)
            key = data[at : at + key_size]
            at += max(0, key_size)
            value_size, at = zigzag(data, at)
            if self.control:
                self.commits = key[3] == 1
            else:
                self.values.append((self.base + offset, bytes(data[at : at + value_size])))
            at = row_end


def batches(data):
    found, at = [], 0
    while at + 61 <= len(data):
        length = struct.unpack_from(">i", data, at + 8)[0]
        if at + 12 + length > len(data):
            break
        found.append(Batch(data, at))
        at += 12 + length
    return found


# Talking


class Connection:
    """One connection of a process."""

    def __init__(self, process, network, address):
        self.process, self.loop = process, process.loop
        self.sock = network.connect(process, address)
        self.out, self.rx, self.waits, self.number = bytearray(), bytearray(), {}, 0
        self.gone = False
        self.loop.add_reader(self.sock.fd, self._read)

    def _read(self):
        buffer = bytearray(65536)
        try:
            size = self.sock.recv_into(buffer)
        except BlockingIOError:
            return None
        except OSError:
            return self.close()
        if not size:
            return self.close()
        self.rx += buffer[:size]
        while len(self.rx) >= 4:
            length = int.from_bytes(self.rx[:4], "big")
            if len(self.rx) < 4 + length:
                break
            answer = bytes(self.rx[4 : 4 + length])
            del self.rx[: 4 + length]
            waiting = self.waits.pop(int.from_bytes(answer[:4], "big"), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(answer[4:])

    def _write(self):
        try:
            while self.out:
                sent = self.sock.send(self.out)
                del self.out[:sent]
            self.loop.remove_writer(self.sock.fd)
        except BlockingIOError:
            self.loop.add_writer(self.sock.fd, self._write)
        except OSError:
            self.close()

    def ask(self, key, version, body, flexible=False):
        """A future of the answer's body."""
        future = self.loop.create_future()
        if self.gone:
            future.set_exception(Gone("closed"))
            return future
        self.number += 1
        head = struct.pack(">hhi", key, version, self.number) + text(self.process.name) + (b"\0" if flexible else b"")
        self.waits[self.number] = future
        self.out += struct.pack(">i", len(head) + len(body)) + head + body
        self._write()
        return future

    async def call(self, key, version, body, timeout=10.0, flexible=False):
        try:
            answer = await asyncio.wait_for(self.ask(key, version, body, flexible), timeout)
        except TimeoutError:
            self.close()
            raise Gone("no answer") from None
        made = Answer(answer)
        if flexible:
            made.tags()
        return made

    def close(self):
        if self.gone:
            return
        self.gone = True
        self.loop.remove_reader(self.sock.fd)
        self.loop.remove_writer(self.sock.fd)
        self.sock.close()
        waits, self.waits = self.waits, {}
        for waiting in waits.values():
            if not waiting.done():
                waiting.set_exception(Gone("closed"))
                waiting.exception()


class Kafka:
    """The requests, on a connection that is made anew when it is gone."""

    def __init__(self, process, network, where):
        self.process, self.network, self.where = process, network, where
        self._connection = None

    def connection(self):
        if self._connection is None or self._connection.gone:
            try:
                self._connection = Connection(self.process, self.network, self.where())
            except OSError as error:
                raise Gone(str(error)) from None
        return self._connection

    def close(self):
        if self._connection is not None:
            self._connection.close()

    def elsewhere(self, error):
        """This one does not lead: look for another."""
        if error in (6, LOAD, NOT_AVAILABLE, NOT_COORDINATOR):
            self.close()

    async def create_topic(self, name, partitions, configs):
        rows = array(text(key) + text(value) for key, value in configs.items())
        topic = text(name) + struct.pack(">ih", partitions, 1) + array(()) + rows
        answer = await self.connection().call(CREATE_TOPICS, 4, array((topic,)) + struct.pack(">ib", 10_000, 0))
        answer.take("i")
        answer.take("i")
        answer.text()
        return answer.take("h")

    def produce_request(self, rows, transactional_id=None, timeout_ms=10_000):
        """The body of Produce 7; `rows` are (topic, partition, batch)."""
        topics = {}
        for topic, partition, data in rows:
            topics.setdefault(topic, []).append(struct.pack(">i", partition) + data_of(data))
        return text(transactional_id) + struct.pack(">hi", -1, timeout_ms) + array(
            text(topic) + array(some) for topic, some in topics.items()
        )  # fmt: skip

    def produce_request_2(self, rows, transactional_id, timeout_ms=10_000):
        """The body of Produce 12."""
        topics = {}
        for topic, partition, data in rows:
            topics.setdefault(topic, []).append(struct.pack(">i", partition) + compact(data) + b"\0")
        out = compact(transactional_id) + struct.pack(">hi", -1, timeout_ms) + uvarint(len(topics) + 1)
        for topic, some in topics.items():
            out += compact(topic) + uvarint(len(some) + 1) + b"".join(some) + b"\0"
        return out + b"\0"

    @staticmethod
    def produced(answer):
        """[(topic, partition, error, base)]."""
        found = []
        for _ in range(answer.take("i")):
            topic = answer.text()
            for _ in range(answer.take("i")):
                partition, error, base, _, _ = answer.take("ihqqq")
                found.append((topic, partition, error, base))
        return found

    @staticmethod
    def produced_2(answer):
        found = []
        for _ in range(answer.uvarint() - 1):
            topic = answer.compact().decode()
            for _ in range(answer.uvarint() - 1):
                partition, error, base, _, _ = answer.take("ihqqq")
                for _ in range(answer.uvarint() - 1):
                    answer.take("i")
                    answer.compact()
                    answer.tags()
                answer.compact()
                answer.tags()
                found.append((topic, partition, error, base))
            answer.tags()
        return found

    async def fetch(self, wants, committed, wait_ms=500, most=1 << 20):
        """{(topic, partition): (error, high, stable, aborted, batches)}."""
        topics = {}
        for (topic, partition), offset, limit in wants:
            topics.setdefault(topic, []).append(struct.pack(">iiqqi", partition, -1, offset, -1, limit))
        body = struct.pack(">iiiibii", -1, wait_ms, 1, most, 1 if committed else 0, 0, -1)
        body += array(text(topic) + array(rows) for topic, rows in topics.items()) + array(()) + text("")
        answer = await self.connection().call(FETCH, 11, body, 20.0)
        answer.take("ihi")
        found = {}
        for _ in range(answer.take("i")):
            topic = answer.text()
            for _ in range(answer.take("i")):
                partition, error, high, stable, _ = answer.take("ihqqq")
                aborted = [answer.take("qq") for _ in range(max(0, answer.take("i")))]
                answer.take("i")
                found[topic, partition] = (error, high, stable, aborted, batches(answer.bytes()))
        return found

    async def init(self, transactional_id, timeout_ms=10_000):
        answer = await self.connection().call(INIT, 1, text(transactional_id) + struct.pack(">i", timeout_ms))
        _, error, producer, epoch = answer.take("ihqh")
        return error, producer, epoch

    async def add_partitions(self, name, producer, epoch, partitions):
        topics = {}
        for topic, partition in partitions:
            topics.setdefault(topic, []).append(struct.pack(">i", partition))
        body = text(name) + struct.pack(">qh", producer, epoch) + array(text(t) + array(p) for t, p in topics.items())
        answer = await self.connection().call(ADD_PARTITIONS, 2, body)
        answer.take("i")
        errors = []
        for _ in range(answer.take("i")):
            answer.text()
            errors += [answer.take("ih")[1] for _ in range(answer.take("i"))]
        return next((error for error in errors if error), 0)

    async def add_offsets(self, name, producer, epoch, group):
        body = text(name) + struct.pack(">qh", producer, epoch) + text(group)
        return (await self.connection().call(ADD_OFFSETS, 2, body)).take("ih")[1]

    async def txn_offsets(self, name, producer, epoch, group, tp, offset):
        row = struct.pack(">iqi", tp[1], offset, -1) + text("")
        body = text(name) + text(group) + struct.pack(">qh", producer, epoch) + array((text(tp[0]) + array((row,)),))
        answer = await self.connection().call(TXN_OFFSETS, 2, body)
        answer.take("i")
        answer.take("i")
        answer.text()
        answer.take("i")
        return answer.take("ih")[1]

    async def txn_offsets_2(self, name, producer, epoch, group, tp, offset):
        row = struct.pack(">iqi", tp[1], offset, -1) + compact("") + b"\0"
        topic = compact(tp[0]) + uvarint(2) + row + b"\0"
        body = compact(name) + compact(group) + struct.pack(">qhi", producer, epoch, -1) + compact("") + b"\0"
        answer = await self.connection().call(TXN_OFFSETS, 5, body + uvarint(2) + topic + b"\0", flexible=True)
        answer.take("i")
        answer.uvarint()
        answer.compact()
        answer.uvarint()
        return answer.take("ih")[1]

    async def end(self, name, producer, epoch, commit):
        body = text(name) + struct.pack(">qhb", producer, epoch, commit)
        return (await self.connection().call(END, 2, body, 15.0)).take("ih")[1], producer, epoch

    async def end_2(self, name, producer, epoch, commit):
        body = compact(name) + struct.pack(">qhb", producer, epoch, commit) + b"\0"
        _, error, producer, epoch = (await self.connection().call(END, 5, body, 15.0, True)).take("ihqh")
        return error, producer, epoch

    async def commit_offset(self, group, tp, offset, generation=-1, member=""):
        row = struct.pack(">iq", tp[1], offset) + text("")
        body = text(group) + struct.pack(">i", generation) + text(member) + array((text(tp[0]) + array((row,)),))
        answer = await self.connection().call(OFFSET_COMMIT, 5, body)
        answer.take("i")
        answer.take("i")
        answer.text()
        answer.take("i")
        return answer.take("ih")[1]

    async def fetch_offset(self, group, tp):
        body = text(group) + array((text(tp[0]) + array((struct.pack(">i", tp[1]),)),))
        answer = await self.connection().call(OFFSET_FETCH, 5, body)
        answer.take("i")
        answer.take("i")
        answer.text()
        answer.take("i")
        _, offset, _ = answer.take("iqi")
        answer.text()
        error = answer.take("h")
        return error or answer.take("h"), offset

    async def end_offset(self, tp, committed=False):
        row = struct.pack(">iiq", tp[1], -1, -1)
        body = struct.pack(">ib", -1, 1 if committed else 0) + array((text(tp[0]) + array((row,)),))
        answer = await self.connection().call(LIST_OFFSETS, 4, body)
        answer.take("i")
        answer.take("i")
        answer.text()
        answer.take("i")
        _, error, _, offset, _ = answer.take("ihqqi")
        return error, offset

    async def join(self, group, member, topics, session_ms=6000):
        meta = struct.pack(">h", 0) + array(text(t) for t in topics) + data_of(b"")
        body = text(group) + struct.pack(">ii", session_ms, 6000) + text(member) + text(None) + text("consumer")
        answer = await self.connection().call(JOIN, 5, body + array((text("range") + data_of(meta),)), 20.0)
        _, error, generation = answer.take("ihi")
        answer.text()
        leader, member = answer.text(), answer.text()
        members = []
        for _ in range(answer.take("i")):
            members.append(answer.text())
            answer.text()
            answer.bytes()
        return error, generation, leader, member, members

    async def sync(self, group, generation, member, assigned):
        rows = array(text(one) + data_of(data) for one, data in assigned.items())
        body = text(group) + struct.pack(">i", generation) + text(member) + text(None) + rows
        answer = await self.connection().call(SYNC, 3, body, 20.0)
        return answer.take("ih")[1], answer.bytes()

    async def heartbeat(self, group, generation, member):
        body = text(group) + struct.pack(">i", generation) + text(member) + text(None)
        return (await self.connection().call(HEARTBEAT, 3, body)).take("ih")[1]
