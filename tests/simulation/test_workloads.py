"""Workloads alone and damaged files, a few universes each; and what the client writes and reads. CI runs many more."""

from __future__ import annotations

import pytest

pytest.importorskip("greenlet")
pytest.importorskip("crc32c")

from tests.simulation.attack import ROOMS
from tests.simulation.clients import WORKLOADS
from tests.simulation.hashes import simulated
from tests.simulation.kafka.batches import Batch, batch, batches, read


@pytest.mark.parametrize("name", [one.name for one in WORKLOADS[6:] if one.name not in ROOMS])
def test_a_workload_alone_keeps_its_promise(name: str) -> None:
    told = simulated("1", "3", "--seconds", "3", "--workloads", name)
    assert told.returncode == 0, told.stdout + told.stderr


def test_damaged_files_are_told_or_nothing_is_missing() -> None:
    told = simulated("1", "8", "--seconds", "2", "--damaged")
    assert told.returncode == 0, told.stdout + told.stderr


def test_what_is_written_is_read() -> None:
    records = [(b"k", b"v"), (b"", None), (b"key", b"x" * 200)]
    [one] = batches(batch(records, 5, 7, 0, 3))
    assert one.crc_ok
    assert [(record.key, record.value) for record in one.records] == records
    assert (one.base, one.last, one.producer, one.latest_ms) == (0, 2, 7, 5)


def test_a_reader_of_committed_records_leaves_out_what_was_aborted() -> None:
    def one(producer: int, value: bytes) -> Batch:
        return batches(batch([(b"", value)], 0, producer, 0, 0, True))[0]

    [left] = read([one(1, b"aborted"), one(2, b"fine")], [(1, 0)])
    assert left.value == b"fine"
