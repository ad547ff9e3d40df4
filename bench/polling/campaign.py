"""A table of tasks that is polled, beside the same tasks in a `Timer`: what lateness costs, and what a burst takes.

For each number of tasks that are due in 100 days:

    lateness    100 tasks a second are added, each due a millisecond later; then nothing is due, and idling is measured
    burst       so many tasks are due at one moment; `rounds` times with the same workers, medians are shown

Then, with the middle number: the same with a commit for each task, beside connections that do nothing but commit; and
what a poll costs beside a transaction that somebody left open.

Rule 1: whoever polls, whoever adds and the server are processes of their own, on the same machine, with the same clock.
Rule 2: each task is had once, none early, and what is due in 100 days is still there: or the run ends with `WrongAnswer`.
Rule 3: before each burst the table is vacuumed, so that nobody pays for the one before him.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from waterclock.bench.polling import commits, figures, in_process, tasks
from waterclock.bench.polling.poller import SKIP_LOCKED, WAYS, Connection
from waterclock.bench.polling.workers import BATCH, Team, Workers, running
from waterclock.bench.servers.postgres import PostgresServer, running_server
from waterclock.errors import WrongAnswer

INTERVALS_MS: Final = (1, 100, 1000)
WORKERS: Final = (1, 3)
AT_ONCE: Final = 10_000  # times the seconds of a measurement: a burst
SINGLY: Final = 400  # the same with a commit for each task
OF_A_BURST: Final = (1, 2, 3)  # workers
BURST_INTERVAL_MS: Final = 10
AHEAD_US: Final = 300_000  # so long before it is due a burst is put into the table
AHEAD_A_TASK_US: Final = 25
CONNECTIONS: Final = (1, 2, 3, 10)
STAY_OPEN: Final = "begin isolation level repeatable read; select count(*) from task"
ANYTHING: Final = "select txid_current()"  # a commit: who polls sees by it that older ones are over
Tell = Callable[[str], None]
Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Ground:
    """The server, a connection to it that is not measured, and how long and how often is measured."""

    server: PostgresServer
    connection: Connection
    seconds: float
    rounds: int
    tell: Tell

    @property
    def url(self) -> str:
        return self.server.url()


def measure(sizes: Sequence[int], rounds: int, seconds: float, tell: Tell) -> Figures:
    """`cells`: lateness and idling; `bursts`; `commits`; `open`: beside a transaction left open."""
    tell("polling: starting PostgreSQL")
    load = os.getloadavg()[0]
    with running_server(tasks.SERVER) as server, tasks.connected(server.url()) as connection:
        ground = Ground(server, connection, seconds, rounds, tell)
        found: Figures = {"seconds": seconds, "rounds": rounds, "batch": BATCH, "pending": list(sizes)}
        found |= {"server": tasks.settings(connection)}
        found |= {"cells": [], "bursts": [], "commits": _commits(ground)}
        for pending in sizes:
            _of_size(ground, pending, found)
            if pending == sizes[len(sizes) // 2]:
                tasks_singly = max(1, round(SINGLY * seconds))
                found["bursts"] += [_burst(ground, team, pending, tasks_singly) for team in _bursting(1)]
                found["open"] = _beside_open(ground, pending)
    return found | {"load": load, "load_after": os.getloadavg()[0]}


def _of_size(ground: Ground, pending: int, found: Figures) -> None:
    at_once = max(1, round(AT_ONCE * ground.seconds))
    ground.tell(f"polling, {pending:,} pending: {in_process.WHO}")
    cell, burst = in_process.measure(pending, ground.seconds, at_once, ground.rounds)
    found["cells"].append(cell)
    found["bursts"].append(burst)
    ground.tell(f"polling, {pending:,} pending: filling the table")
    tasks.make(ground.connection, pending)
    found["cells"] += [_cell(ground, Team(*of), pending) for of in _cells()]
    found["bursts"] += [_burst(ground, team, pending, at_once) for team in _bursting(BATCH)]


def _cells() -> Iterator[tuple[str, int, int]]:
    return ((way, ms, workers) for ms in INTERVALS_MS for workers in WORKERS for way in WAYS)


def _bursting(batch: int) -> list[Team]:
    return [Team(way, BURST_INTERVAL_MS, workers, batch) for workers in OF_A_BURST for way in WAYS]


def _commits(ground: Ground) -> list[Figures]:
    ground.tell("polling: what the database commits")
    return [commits.measure(ground.url, connections, ground.seconds / 2) for connections in CONNECTIONS]


# Lateness, and idling


def _cell(ground: Ground, team: Team, pending: int) -> Figures:
    ground.tell(f"polling, {pending:,} pending: {_name(team)}")
    with running(ground.url, team) as workers:
        dues = tasks.add_some(ground.connection, ground.seconds)
        workers.until_won(len(dues))
        lost = workers.counters()["lost"]
        idle = _idle(ground, team, workers)
    _check(ground, team, pending, dues, workers)
    return {**_record(team, pending), **figures.lateness(dues, workers.given), "lost": lost, **idle}


def _idle(ground: Ground, team: Team, workers: Workers) -> Figures:
    """For half the seconds, and a whole interval at least."""
    before = _counters(ground, workers)
    time.sleep(max(ground.seconds / 2, team.interval_ms / 1000))
    return figures.idle(before, _counters(ground, workers))


def _counters(ground: Ground, workers: Workers) -> dict[str, float]:
    return {"at_s": time.monotonic(), "server_cpu_s": ground.server.cpu_s(), **workers.counters()}


def _check(ground: Ground, team: Team, pending: int, dues: tasks.Dues, workers: Workers) -> None:
    figures.check(_name(team), dues, workers.given)
    if (left := tasks.waiting(ground.connection)) != pending:
        raise WrongAnswer(f"{_name(team)}: {left} tasks are left that are not due, of {pending}")


def _name(team: Team) -> str:
    workers = "1 worker" if team.workers == 1 else f"{team.workers} workers"
    return f"{team.way}, every {team.interval_ms} ms, {workers}, batches of {team.batch}"


def _record(team: Team, pending: int) -> Figures:
    of = asdict(team)
    return {"who": of.pop("way"), **of, "pending": pending}


# Bursts


def _burst(ground: Ground, team: Team, pending: int, at_once: int) -> Figures:
    ground.tell(f"polling, {pending:,} pending: {at_once:,} at one moment; {_name(team)}")
    rounds: list[figures.Burst] = []
    with running(ground.url, team) as workers:
        for _ in range(ground.rounds):
            tasks.clear(ground.connection)
            rounds.append(_at_once(ground, at_once))
            workers.until_won(at_once * len(rounds))
        lost = workers.counters()["lost"]
    _check(ground, team, pending, _dues(rounds), workers)
    tasks.clear(ground.connection)
    return {**_record(team, pending), **figures.throughput(rounds, workers.given), "lost": lost / ground.rounds}


def _dues(rounds: Sequence[figures.Burst]) -> tasks.Dues:
    return {number: due_us for one in rounds for number, due_us in one.dues.items()}


def _at_once(ground: Ground, at_once: int) -> figures.Burst:
    """Tasks that are due at one moment, and are in the table before it; where they were not, they count from then on."""
    due_us = tasks.now_us() + AHEAD_US + AHEAD_A_TASK_US * at_once
    dues = tasks.add_burst(ground.connection, at_once, due_us)
    return figures.Burst(dues, max(due_us, tasks.now_us()))


# A transaction left open


def _beside_open(ground: Ground, pending: int) -> Figures:
    """What idling costs before a burst is done, after it beside a transaction that is open, and when that has ended."""
    at_once = max(1, round(AT_ONCE * ground.seconds))
    team = Team(SKIP_LOCKED, BURST_INTERVAL_MS, 1)
    ground.tell(f"polling, {pending:,} pending: beside a transaction left open")
    with running(ground.url, team) as workers, tasks.connected(ground.url) as other:
        before = _idle(ground, team, workers)
        other.execute(STAY_OPEN)
        burst = _at_once(ground, at_once)
        workers.until_won(at_once)
        beside = _idle(ground, team, workers)
        other.execute("rollback")
        ground.connection.execute(ANYTHING)
        after = _idle(ground, team, workers)
    _check(ground, team, pending, _dues([burst]), workers)
    tasks.clear(ground.connection)
    return {"tasks": at_once, "before": before, "beside": beside, "after": after}
