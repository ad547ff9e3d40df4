"""Readers: one session from a reader's beginning until it is killed, through logs that grow; some by fetch sessions."""

from __future__ import annotations

from tests.simulation.clients.actor import Actor
from tests.simulation.clients.places import INPUT, OUTPUT, PLAIN
from tests.simulation.kafka import codes as k
from tests.simulation.kafka.batches import read
from tests.simulation.kafka.client import Place
from tests.simulation.kafka.fetching import Fetched, FetchSession, fetch
from tests.simulation.promises import Session


class Reader(Actor):
    """`incremental` is its fetch session (KIP-227), None without: then each fetch says all that it wants."""

    def begin(self) -> None:
        self.committed = self.rng.random() < 0.6
        self.sessions: dict[Place, Session] | None = None
        self.incremental = FetchSession() if self.world.stream(f"fetches of {self.name}").random() < 0.5 else None

    def first(self) -> dict[Place, Session]:
        found = {}
        for tp in [*PLAIN, INPUT, OUTPUT]:
            first = 0 if self.rng.random() < 0.7 else self.history.highs.get((tp, "stable"), 0)
            found[tp] = Session(self.name, tp, self.committed, first)
        self.history.sessions += found.values()
        return found

    async def work(self) -> None:
        highs = self.history.highs
        if self.sessions is None:
            self.sessions = self.first()
        limit = self.rng.choice((500, 4000, 1 << 20))
        tps = self.rng.sample(list(self.sessions), self.rng.randrange(1, 6))
        floors = {(tp, what): highs.get((tp, what), 0) for tp in tps for what in ("high", "stable")}
        wants = [(tp, self.sessions[tp].position, limit) for tp in tps]
        self.history.ops += 1
        wait_ms, most = self.rng.choice((0, 100, 500)), self.rng.choice((1000, 1 << 20))
        found = await self.fetch(wants, wait_ms, most)
        for tp, one in found.items():
            if one.error:
                await self.failed(tp, one.error)
                continue
            if self.universe.ends_rise:
                self.history.told_end(tp, "high", one.high, floors[tp, "high"])
                self.history.told_end(tp, "stable", one.stable, floors[tp, "stable"])
            self.take(self.sessions[tp], one)
        await self.between(0.1)

    async def fetch(self, wants: list[tuple[Place, int, int]], wait_ms: int, most: int) -> dict[Place, Fetched]:
        session = self.incremental
        if session is not None and self.kafka.fresh:
            session.told(k.NO_SESSION, 0)  # another broker, or the same one after its end: begin anew
        found = await fetch(self.kafka, wants, self.committed, wait_ms, most, session)
        asked = {tp for tp, *_ in wants}
        for tp in found:
            if tp not in asked:
                self.world.problem("refused", f"{self.name} was answered {tp}, which it did not ask for")
        return {tp: one for tp, one in found.items() if tp in asked}

    async def failed(self, tp: Place, error: int) -> None:
        self.tell("fetch", tp, error)
        self.kafka.elsewhere(error)
        lost = self.incremental is not None and error in (k.NO_SESSION, k.BAD_SESSION)
        if error not in k.RETRIABLE and not lost:
            self.refused(f"fetch {tp} at {self.sessions and self.sessions[tp].position}", error)
        await self.pause(0.05, 0.2)

    def take(self, session: Session, found: Fetched) -> None:
        some, upto = found.batches, found.stable if self.committed else found.high
        if any(not one.crc_ok for one in some):
            self.world.problem("garbage", f"a batch of {session.tp}")
        for record in read(some, found.aborted if self.committed else None):
            if (offset := record.offset) >= session.position:
                if offset >= upto:
                    self.world.problem("early", f"{session.tp} {offset} is not below {upto}")
                session.offsets.append(offset)
                self.history.saw(session.tp, record, self.committed)
        if some:
            self.tell("read", session.tp, session.position, some[-1].last + 1)
            session.position = max(session.position, some[-1].last + 1)
