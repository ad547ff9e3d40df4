"""One run at a time where there are no locks: a lease, and what a run is told that was taken over. Here on file://."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from waterclock.errors import UsageError
from waterclock.streaming import owner as leases
from waterclock.streaming.owner import OWNERS, Lease
from waterclock.streaming.places.hadoop import HadoopPath

pytestmark = pytest.mark.spark


class Leases:
    """Runs at one checkpoint; each lets go at the end."""

    def __init__(self, place: HadoopPath) -> None:
        self.place, self._made = place, list[Lease]()

    def new(self) -> Lease:
        self._made.append(Lease(self.place))
        return self._made[-1]

    def taken(self) -> Lease:
        made = self.new()
        made.take()
        return made

    def holder(self, number: int) -> dict[str, object]:
        return json.loads((self.place / OWNERS / f"{number:012d}").read_bytes())  # type: ignore[no-any-return]

    def written_by(self, number: int, **holder: object) -> None:
        """An epoch of somebody else."""
        (self.place / OWNERS).make_folder()
        (self.place / OWNERS / f"{number:012d}").write_whole(json.dumps(holder).encode())

    def close(self) -> None:
        for made in self._made:
            made.let_go()


@pytest.fixture
def runs(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Leases]:
    monkeypatch.setattr(leases, "LEASE_S", 60.0)
    monkeypatch.setattr(leases, "RENEW_S", 0.3)
    monkeypatch.setattr(leases, "_LOOK_EVERY_S", 0.05)
    place = HadoopPath(f"file://{tmp_path}/checkpoint")
    place.make_folder()
    with closing(Leases(place)) as made:
        yield made


def numbers(lease: Lease) -> tuple[str, int]:
    assert lease.epoch is not None
    return lease.epoch.lineage, lease.epoch.number


def test_a_second_run_is_refused_while_the_first_renews_and_told_who_it_is(runs: Leases) -> None:
    first = runs.taken()
    first.take()  # again is the same
    with pytest.raises(UsageError, match=rf"another run has the checkpoint .* \(on .*, process {os.getpid()}\): wait"):
        runs.taken()
    first.check()


def test_what_is_let_go_is_taken_at_once_in_the_next_epoch_of_the_same_lineage(
    runs: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = runs.taken()
    lineage, number = numbers(first)
    first.let_go()
    monkeypatch.setattr(leases, "LEASE_S", 10_000)  # nobody waits for that
    assert numbers(runs.taken()) == (lineage, number + 1)


def test_a_lease_whose_old_files_cannot_be_removed_is_held_and_renewed(
    runs: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    # it counted as taken at the next try, and nobody renewed it
    def refused(self: Lease, number: int) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Lease, "_forget_before", refused)
    first = runs.taken()
    first.check()
    assert first._renewing is not None
    assert first._renewing.is_alive()


def test_a_run_that_is_not_heard_of_is_taken_over_and_told_so(runs: Leases, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "RENEW_S", 10_000)  # as one that stands still
    monkeypatch.setattr(leases, "LEASE_S", 0.5)
    first = runs.taken()
    lineage, number = numbers(first)
    second = runs.taken()
    assert numbers(second) == (lineage, number + 1)
    with pytest.raises(UsageError, match=r"has taken the checkpoint .* over, since nothing was heard of this one"):
        first.check()
    with pytest.raises(UsageError, match="has taken the checkpoint"):
        first.take()
    first.let_go()  # which changes nothing for the second
    assert "released" not in runs.holder(number + 1)
    second.check()


def test_a_run_that_wakes_up_does_not_renew_what_another_one_has(
    runs: Leases, caplog: pytest.LogCaptureFixture
) -> None:
    first = runs.taken()
    runs.written_by(2, lineage=numbers(first)[0])
    assert first._renewing is not None
    first._renewing.join(20)
    assert not first._renewing.is_alive()
    assert "this one will be refused" in caplog.text


def test_a_process_of_this_machine_that_is_gone_is_not_waited_for(
    runs: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "LEASE_S", 10_000)
    gone = subprocess.Popen(["true"])
    gone.wait()
    runs.written_by(1, machine=leases._machine(), process=gone.pid, started="12345", lineage="x")
    assert numbers(runs.taken()) == ("x", 2)


def test_a_process_id_that_another_process_has_now_is_told_from_it(
    runs: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "LEASE_S", 10_000)
    runs.written_by(1, machine=leases._machine(), process=os.getpid(), started="12345", lineage="x")
    assert numbers(runs.taken()) == ("x", 2)


def test_a_run_of_another_machine_is_waited_for(runs: Leases, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LEASE_S", 1.5)
    runs.written_by(1, machine="another", process=1, started="1", lineage="x")
    began = leases.SystemClock().monotonic_s()
    assert numbers(runs.taken()) == ("x", 2)
    assert leases.SystemClock().monotonic_s() - began > 1.0


def test_an_epoch_that_holds_no_text_of_ours_is_waited_for_too(runs: Leases, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LEASE_S", 0.5)
    (runs.place / OWNERS).make_folder()
    (runs.place / OWNERS / f"{7:012d}").write_whole(b"\xff{")
    assert numbers(runs.taken())[1] == 8


def test_old_epochs_are_forgotten_and_the_numbers_go_on(runs: Leases) -> None:
    for _ in range(4):
        runs.taken().let_go()
    assert sorted(path.name for path in (runs.place / OWNERS).iterdir()) == [f"{n:012d}" for n in (3, 4)]


def test_there_is_nothing_to_take_before_there_is_a_folder(runs: Leases, tmp_path: Path) -> None:
    lease = Lease(HadoopPath(f"file://{tmp_path}/none"))
    lease.take()
    assert (lease.epoch, (tmp_path / "none").exists()) == (None, False)
    lease.let_go()


def test_a_lease_whose_store_is_gone_runs_out_without_an_error(runs: Leases) -> None:
    lease = runs.taken()
    runs.place.remove()
    lease.let_go()
