"""Two brokers in this process, one of which follows the other, and what tests ask of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.broker.raw_client import RawClient
from waterclock import ManualClock
from waterclock.broker import Access, Broker
from waterclock.broker.folder.topics import Topics
from waterclock.broker.follower import Follower
from waterclock.broker.log.partition import Partition

PATIENCE_S = 20.0
LAG_S = 30.0  # replica.lag.time.max.ms, unless a test says otherwise
GONE = (OSError, ValueError, IndexError)  # what a client meets whose broker ends
FETCHED = {"group_id": "g", "topics": [{"name": "t", "partition_indexes": (0,)}], "require_stable": False}


def commit_of(offset: int) -> dict[str, Any]:
    """OffsetCommit of the group g for t-0."""
    row = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1, "committed_metadata": ""}
    given = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    return {**given, "topics": [{"name": "t", "partitions": [row]}]}


def until(condition: Callable[[], Any], what: str = "") -> None:
    """Wait for what other threads bring about."""
    pause = threading.Event()
    for _ in range(int(PATIENCE_S / 0.002)):
        if condition():
            return
        pause.wait(0.002)
    raise AssertionError(f"it did not come about: {what or condition}")


class Pair:
    """`one` leads at first and `two` follows it; both keep their folders, ports and settings over a restart."""

    def __init__(
        self,
        folder: Path,
        settings: dict[str, str] | None = None,
        clock: ManualClock | None = None,
        ids: tuple[int | None, int | None] = (None, None),
        access: tuple[Access, Access] = (Access(), Access()),
    ) -> None:
        """`ids` are the two brokers' node.id; None: it is not set. `access` is who may connect to each, and how."""
        self.settings = {"auto.create.topics.enable": "false", **(settings or {})}
        first, second = ({} if one is None else {"node.id": str(one)} for one in ids)
        self.access = dict(zip(("one", "two"), access, strict=True))
        self.one = Broker(folder / "one", settings=self.settings | first, clock=clock, access=access[0])
        self._folder = folder
        for name in ("one", "two"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self.one.start()
        self.two = Broker(folder / "two", settings=self.settings | second, follow=self.one.bootstrap, access=access[1])

    def follow(self) -> None:
        """Let the second begin, and be in sync."""
        self.two.start()
        self.synced()

    def again(self, name: str, follow: str | None = None) -> Broker:
        """The broker of that name anew, on its port."""
        old: Broker = getattr(self, name)
        new = Broker(
            self._folder / name, port=int(old.bootstrap.split(":")[1]), settings=self.settings, follow=follow,
            access=self.access[name],
        )  # fmt: skip
        setattr(self, name, new)
        return new

    def leader(self) -> Broker:
        return self.one if self.one.leads else self.two

    def synced(self, leader: Broker | None = None) -> None:
        """Wait until the follower lacks nothing, in every partition."""
        broker = leader or self.one

        def lacks_nothing() -> bool:
            said, other = broker.statistics(), self.two if broker is self.one else self.one
            if not other.call(lambda: other.leads or other.inside_follower.replica.applied is not None):
                return False  # what the store has is still to come
            return said.replication.in_sync == said.partitions + 1 and said.replication.lag == 0

        until(lacks_nothing, "the follower is in sync")

    def freeze(self) -> None:
        """The follower stands still, as a process that was stopped."""
        self.two.faults.freeze()

    def thaw(self) -> None:
        self.two.faults.thaw()

    def close(self) -> None:
        self.two.close()
        self.one.close()


@contextmanager
def pair(
    folder: Path,
    settings: dict[str, str] | None = None,
    clock: ManualClock | None = None,
    access: tuple[Access, Access] = (Access(), Access()),
) -> Iterator[Pair]:
    """A pair with a topic `t` of one partition, in sync."""
    both = Pair(folder, settings, clock, access=access)
    try:
        both.one.create_topic("t")
        both.follow()
        yield both
    finally:
        both.close()


def following(broker: Broker) -> Follower:
    """A follower's own object."""
    return broker.inside_follower


def partition(broker: Broker, topic: str = "t", number: int = 0) -> Partition:
    """A broker's own object: for reading what stands in it, through `Broker.call`."""
    found = _topics(broker).partition(topic, number)
    assert found is not None
    return found


def has(broker: Broker, topic: str) -> bool:
    """Whether the broker knows the topic."""
    return topic_id(broker, topic) is not None


def topic_id(broker: Broker, topic: str) -> object:
    """The id of a topic; None where there is none."""
    return broker.call(lambda: getattr(_topics(broker).by_name.get(topic), "id", None))


def _topics(broker: Broker) -> Topics:
    return broker.inside.topics if broker.leads else broker.inside_follower.topics


def high(broker: Broker, topic: str = "t", number: int = 0) -> int:
    return broker.call(lambda: partition(broker, topic, number).high)


def end(broker: Broker, topic: str = "t", number: int = 0) -> int:
    return broker.call(lambda: partition(broker, topic, number).end)


def log_bytes(broker: Broker, topic: str = "t", number: int = 0) -> bytes:
    """The partition's whole log as it stands on the disk: base offsets, epochs and all."""

    def read() -> bytes:
        segments = partition(broker, topic, number).segments
        return b"".join(Path(segment.path + ".log").read_bytes()[: segment.size] for segment in segments)

    return broker.call(read)


def values(broker: Broker, topic: str = "t", number: int = 0) -> list[bytes]:
    """The values of all records in the broker's log, whether readers may see them or not."""
    from waterclock.broker.log.batch import header_of
    from waterclock.broker.log.records import records

    data, at, found = log_bytes(broker, topic, number), 0, []
    while at < len(data):
        batch = header_of(data, at)
        size = 12 + batch.length
        if not batch.control:
            found += [record.value or b"" for record in records(data[at : at + size])]
        at += size
    return found


@contextmanager
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap) as raw:
        yield raw


def visible(broker: Broker, topic: str = "t") -> int:
    """How many bytes a consumer is given from the start, without waiting."""
    with client(broker) as raw:
        rows = [{"partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
        answer = raw.ask(
            "Fetch", 11, replica_id=-1, max_wait=_ms(0), min_bytes=1, topics=[{"topic": topic, "partitions": rows}],
            session_epoch=-1, rack_id="", isolation_level=0, max_bytes=1 << 20, forgotten_topics_data=[], session_id=0,
        )  # fmt: skip
        return len(answer.responses[0].partitions[0].records or b"")


def _ms(count: int) -> Any:
    from datetime import timedelta

    return timedelta(milliseconds=count)
