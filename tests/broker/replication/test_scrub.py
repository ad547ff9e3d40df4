"""The copy is scrubbed too: a follower whose files are damaged says so before it is promoted."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("kio")

from tests.broker.raw_client import RawClient
from tests.broker.record_batches import stored
from tests.broker.replication.pairs import pair, partition, until

SETTINGS = {"log.segment.bytes": "20000", "log.initial.task.delay.ms": "1"}


def test_damage_of_the_copy_is_told_by_the_follower(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pair(tmp_path, SETTINGS) as both:
        with RawClient(both.one.bootstrap) as client:
            for number in range(60):
                assert client.produce("t", b"%d" % (number % 10) * 1000) == (0, number)
        both.synced()
        both.two.close()
        path = sorted((tmp_path / "two").glob("topics/t-0.*/*.log"))[1]
        data = bytearray(path.read_bytes())
        third = stored(bytes(data))[2]
        data[data.index(third.raw) + 700] ^= 1
        path.write_bytes(data)
        both.again("two", follow=both.one.bootstrap).start()
        until(lambda: both.two.statistics().scrub.segments_left == 0, "the copy was read")
        assert both.two.statistics().scrub.damaged == 1
        assert f"{path} is damaged" in caplog.text
        assert f"offsets {third.base} to {third.base} are lost" in caplog.text
        both.synced()
        assert both.two.call(lambda: partition(both.two).end) == 60


def test_a_follower_that_is_closed_or_promoted_leaves_it_where_it_is(tmp_path: Path) -> None:
    with pair(tmp_path, SETTINGS | {"log.initial.task.delay.ms": "0"}) as both:
        both.two.promote()
        assert both.two.statistics().scrub.damaged == 0
