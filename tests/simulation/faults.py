"""The faults: what each does to a machine, the network, a client.

Rule 1: a fault's choices come from its own stream (`Strike.rng`), so that it is the same one whatever else is left out.
Rule 2: each tells where it hit: the line of the product that made the system call, or that each thread stood in.
Rule 3: what is taken is given back after a while; what was killed starts again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.simulation import coverage
from tests.simulation.strike import Strike
from waterclock.simulation.world import MS, NS, US

if TYPE_CHECKING:
    from tests.simulation.node import Node
    from tests.simulation.plan import Fault
    from tests.simulation.universe import Universe
    from waterclock.simulation.processes import Process

MARKS = sorted(name for name, (module, _) in coverage.MARKS.items() if module in coverage.AIMED_AT)
RARE = (
    "rename", "rename after", "unlink", "truncate", "ftruncate", "fallocate", "mkdir", "open", "fsync before",
    "fsync after",
)  # fmt: skip


# a broker dies


def _kill(strike: Strike, node: Node, process: Any, where: str) -> None:
    if process.alive:
        strike.tell("kill", f"{node.name} {where}", process)
        process.kill()
        node.goes_down()


def _cut_power(strike: Strike, node: Node, process: Any, where: str) -> None:
    if process.alive:
        strike.tell("power cut", f"{node.name} {where}", process)
        strike.world.log(node.name, "power cut", where, process.lose_power())
        node.goes_down()


Deed = Callable[["Strike", "Node", Any, str], None]


def _at_some_call(strike: Strike, node: Node, deed: Deed) -> None:
    """Now, or in the midst of a system call to come."""
    rng, process = strike.rng, node.process
    if node.alive and rng.random() < 0.3:
        deed(strike, node, process, "now")
    elif node.alive:
        rare = rng.random() < 0.5  # what is seldom called has its turn too
        process.doom_at = rng.choice(RARE) if rare else None
        _doom(strike, node, deed, rng.randrange(1, 5 if rare else rng.choice((5, 40, 200))))


def _doom(strike: Strike, node: Node, deed: Deed, calls: int) -> None:
    process = node.process
    process.doom = calls
    process.doomed = lambda where: deed(strike, node, process, where)


def kill(strike: Strike) -> None:
    _at_some_call(strike, strike.node(), _kill)


def cut_power(strike: Strike) -> None:
    _at_some_call(strike, strike.node(), _cut_power)


def cut_and_fill(strike: Strike) -> None:
    """A power cut, and a disk that is full when it comes back."""
    node = strike.node()
    if node.alive and not node.disk.full:
        _cut_power(strike, node, node.process, "now")
        node.disk.full = True
        strike.later(NS, 4 * NS, node.has_room)


def stop_cleanly(strike: Strike) -> None:
    node = strike.node()
    if node.alive and node.up and not node.role.over.done():
        strike.tell("stop", node.name)
        over = node.role.over
        node.process.loop.call_soon(lambda: over.done() or over.set_result("stop"))
        strike.later(100 * MS, 3 * NS, _start_again, strike, node, node.process)


def _start_again(strike: Strike, node: Node, stopping: Process) -> None:
    if node.alive and node.process is stopping:
        strike.later(100 * MS, 101 * MS, _start_again, strike, node, stopping)
    else:
        node.start()


def freeze(strike: Strike) -> None:
    node = strike.node()
    if node.alive:
        strike.tell("freeze", node.name, node.process)
        node.process.frozen_until = strike.world.now + strike.rng.randrange(50 * MS, 6 * NS)


# its disk, its date


def fill_disk(strike: Strike) -> None:
    _fill(strike, strike.node(), 50 * MS, 4 * NS)


def _fill(strike: Strike, node: Node, least_ns: int, most_ns: int) -> None:
    if not node.disk.full:
        strike.tell("full disk", node.name, node.process)
        node.disk.full = True
        node.may_fail(strike.world.now + most_ns)
        strike.later(least_ns, most_ns, node.has_room)


def refuse_once(strike: Strike) -> None:
    """A disk is full for one call, the next that wants room, and takes its time to say so: what others hand in meanwhile
    finds room."""
    node, slow_ns = strike.node(), strike.rng.choice((500 * US, 5 * MS, 30 * MS))

    def refused() -> None:
        node.disk.full, node.disk.refused = False, None
        strike.tell("one call refused", node.name, node.process)
        strike.world.sleep(slow_ns)

    def over() -> None:
        node.disk.refused = None
        node.has_room()

    if not node.disk.full:
        node.disk.full, node.disk.refused = True, refused
        node.may_fail(strike.world.now + 2 * NS)
        strike.later(100 * MS, 2 * NS, over)


def break_flush(strike: Strike) -> None:
    node = strike.node()
    if node.alive:
        strike.tell("flush fails", node.name)
        node.disk.broken_flush = True
        strike.later(1 * MS, 100 * MS, node.flushes)


def break_reads(strike: Strike) -> None:
    """A file cannot be read for a while, from some byte on: a client or a start is told, or has it whole."""
    node = strike.node()
    paths = node.disk.files("/data")
    if paths:
        path, until_ns = strike.rng.choice(paths), strike.world.now + strike.rng.choice((50 * MS, NS, 4 * NS))
        first = strike.rng.randrange(1 + len(node.disk.file(path).data)) if strike.rng.random() < 0.5 else 0
        strike.tell("reads fail", f"{node.name} {path} from {first}")
        node.disk.break_reads(path, first)
        node.may_fail(until_ns)
        strike.world.at(until_ns, node.disk.mend_reads)
        if strike.rng.random() < 0.3:
            _at_some_call(strike, node, _kill)  # a start meets it too


def slow_file(strike: Strike) -> None:
    """The flushes of some files take longer than all others, as where each lies on a disk of its own; in half of the times
    power is cut meanwhile: what leans on the order of two files shows."""
    node, rng = strike.node(), strike.rng
    kinds: dict[str, list[str]] = {}
    for path in node.disk.files("/data"):
        kinds.setdefault(path.rpartition("/")[2].lstrip("0123456789"), []).append(path)
    if kinds:
        kind = rng.choice(sorted(kinds))
        slower_ns = rng.choice((5 * MS, 40 * MS, 300 * MS))
        strike.tell("slow files", f"{node.name} {kind}")
        node.disk.slower_ns = dict.fromkeys((node.disk.file(path).number for path in kinds[kind]), slower_ns)
        strike.later(200 * MS, 2 * NS, node.disk.slower_ns.clear)
        if rng.random() < 0.5:
            strike.later(slower_ns // 2, 4 * slower_ns, _cut_power, strike, node, node.process, "while files are slow")


def slow_disk(strike: Strike) -> None:
    strike.tell("slow disk")
    strike.world.fsync_ns = strike.rng.choice(((20 * MS, 400 * MS), (5 * MS, 50 * MS), (50 * US, 100 * US)))
    strike.later(200 * MS, 5 * NS, strike.universe.usual_disk)


def step_date(strike: Strike) -> None:
    node = strike.node()
    strike.tell("date", node.name)
    node.skew_ms = strike.rng.randrange(-2_400_000, 2_400_000)
    if node.process is not None:
        node.process.skew_ms = node.skew_ms


# the network, and clients


def reset(strike: Strike) -> None:
    pairs = list(strike.universe.network.pairs)
    if pairs:
        strike.tell("reset")
        for sock in strike.rng.sample(pairs, strike.rng.randrange(1, len(pairs) + 1)):
            strike.universe.network.reset(sock)


def slow_net(strike: Strike) -> None:
    strike.tell("slow net")
    strike.universe.network.delay = strike.rng.choice(((1 * MS, 300 * MS), (10 * US, 30 * US), (1 * MS, 30 * MS)))
    strike.later(200 * MS, 5 * NS, strike.universe.usual_net)


def _client(strike: Strike) -> Any:
    working = strike.universe.working
    return working[strike.rng.choice(sorted(working))] if working else None


def kill_client(strike: Strike) -> None:
    client = _client(strike)
    if client is not None and client.actor.process.alive:
        strike.tell("client killed", client.name)
        client.actor.process.kill()
        strike.later(10 * MS, 2 * NS, strike.universe.spawn_again, client)


def freeze_client(strike: Strike) -> None:
    client = _client(strike)
    if client is not None and client.actor.process.alive:
        strike.tell("client frozen", client.name)
        client.actor.process.frozen_until = strike.world.now + strike.rng.randrange(50 * MS, 15 * NS)


# a pair


def promote(strike: Strike) -> None:
    follower = next((node for node in strike.universe.nodes if node.alive and node.up and not node.leads), None)
    if follower is not None:
        strike.tell("promotion", follower.name)
        name, role = follower.name, follower.role
        follower.process.loop.call_soon(lambda: strike.world.log("promote", name, int(role.promote())))


def lose_leader(strike: Strike) -> None:
    """The leader goes, and the other is promoted."""
    leader = next((node for node in strike.universe.nodes if node.leads), None)
    if leader is not None:
        _at_some_call(strike, leader, strike.rng.choice((_kill, _cut_power)))
        strike.later(10 * MS, NS, promote, strike)


def lose_both(strike: Strike) -> None:
    for node in strike.universe.nodes:
        _at_some_call(strike, node, strike.rng.choice((_kill, _cut_power)))


# aimed: they wait until a rare branch is passed


def _aim(strike: Strike, deed: Callable[[Strike, Node, Any], None]) -> None:
    """Do it where a broker passes the mark, the first time or one of the next."""
    left = strike.rng.choice((1, 1, 1, 2, 3, 6))

    def passing() -> None:
        nonlocal left
        if strike.universe.quiet:  # and no thread may run any more: what is left of the processes is unwound
            return
        process = strike.world.thread.process
        node = next((one for one in strike.universe.machines if one.process is process), None)
        left -= 1
        if left > 0 or node is None:
            coverage.wait(strike.fault.mark, passing)
        else:
            deed(strike, node, process)

    coverage.wait(strike.fault.mark, passing)


def kill_at(strike: Strike) -> None:
    _aim(strike, lambda strike, node, process: _doom(strike, node, _kill, strike.rng.choice((1, 2, 3, 4, 6, 10, 20))))


def cut_at(strike: Strike) -> None:
    _aim(
        strike,
        lambda strike, node, process: _doom(strike, node, _cut_power, strike.rng.choice((1, 2, 3, 4, 6, 10, 20))),
    )


def slow_call(strike: Strike) -> None:
    """A system call to come takes long, while the other threads go on."""
    node = strike.node()
    if node.alive:
        node.process.doom_at = strike.rng.choice((None, "fsync before", "fsync before", *RARE))
        _doom(strike, node, _hold, strike.rng.choice((1, 3, 10, 30)))


def _hold(strike: Strike, node: Node, process: Any, where: str) -> None:
    """The thread waits until it is resumed: who is doomed parks."""
    thread = strike.world.thread
    thread.ticket += 1
    strike.world.at(strike.world.now + _standstill(strike, node, process, where), thread.resume, thread.ticket)


def stall_at(strike: Strike) -> None:
    """The thread stands still there, while the others go on."""
    _aim(strike, lambda strike, node, process: strike.world.sleep(_standstill(strike, node, process, "")))


def _standstill(strike: Strike, node: Node, process: Any, where: str) -> int:
    """For how long a thread stands still; in half of the times power is cut meanwhile."""
    ns: int = strike.rng.choice((2 * MS, 20 * MS, 200 * MS))
    strike.tell("stall", f"{node.name} {where}", process)
    if strike.rng.random() < 0.5:
        strike.later(ns // 4, ns, _cut_power, strike, node, process, "while a thread stood still")
    return ns


def cut_when_told(strike: Strike) -> None:
    """Power goes as a client hears its answer, the next one or one of those after it: what it was told has to hold."""
    left = strike.rng.choice((1, 2, 5, 15))

    def told() -> None:
        nonlocal left
        left -= 1
        node = strike.node()
        if left > 0:
            coverage.wait(coverage.TOLD, told)
        elif node.alive and not strike.universe.quiet:
            most_ns = strike.rng.choice((2, 100 * US, 2 * MS))
            strike.later(1, most_ns, _cut_power, strike, node, node.process, "as a client was told")

    coverage.wait(coverage.TOLD, told)


def flicker(strike: Strike) -> None:
    """A disk without room, with some, without, ...: behind what is refused the next one is taken."""
    node, until_ns = strike.node(), strike.world.now + strike.rng.randrange(100 * MS, 3 * NS)
    most_ns = strike.rng.choice((2 * MS, 20 * MS, 200 * MS))
    strike.tell("flickering disk", node.name, node.process)

    def turn() -> None:
        node.disk.full = strike.world.now < until_ns and not (node.disk.full or strike.universe.quiet)
        node.may_fail(strike.world.now)
        if strike.world.now < until_ns:
            strike.later(1, most_ns, turn)

    turn()


def fill_at(strike: Strike) -> None:
    _aim(strike, lambda strike, node, process: _fill(strike, node, 1 * MS, 100 * MS))


USUAL = (
    kill, cut_power, stop_cleanly, freeze, reset, fill_disk, slow_disk, break_flush, step_date, kill_client, freeze_client,
    slow_net, slow_call, kill_at, cut_at, stall_at, fill_at, cut_when_told, flicker,
)  # fmt: skip
OF_A_PAIR = (promote, promote, lose_leader, lose_leader, lose_both)
KINDS = {deed.__name__: deed for deed in (*USUAL, *OF_A_PAIR, cut_and_fill, break_reads, slow_file, refuse_once)}
AIMED = {deed.__name__ for deed in (kill_at, cut_at, stall_at, fill_at)}


def kinds(pair: bool) -> tuple[str, ...]:
    return tuple(deed.__name__ for deed in (*USUAL, *(OF_A_PAIR if pair else ())))


def strike(universe: Universe, fault: Fault) -> None:
    KINDS[fault.kind](Strike(universe, fault))
