"""What relays promise (docs/relay.md), held against what stands in Kafka in the end.

1. Each request is delivered, cancelled or put aside: one of these, once, unchanged.
2. Nothing is sent before it is due by its relay's clock, at the latest date that this has shown.
3. Of an input partition and a target's partition all comes by due time, then in the order of the input. What was
   acknowledged less than `MOMENTS_NS` before another one was sent may come behind that; so may what waits for room on
   a disk, or is read through a connection that is silent (a broker's machine that lost its power says nothing).
4. Each cancel and replace has one answer, and it is true.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from tests.simulation.kafka.batches import Record
from tests.simulation.relay.senders import ABSENT, INPUT
from waterclock.simulation.world import NS

Place = tuple[int, int]  # partition and offset in the input
MOMENTS_NS = 3 * NS


class Asked(NamedTuple):
    """What a record of the input asks for; `due_ms` is None of what is no message."""

    record: Record
    action: str
    id: bytes | None
    target: str
    due_ms: int | None
    is_bad: bool


class Delivered(NamedTuple):
    target: str
    number: int  # of its partition
    record: Record


def asked(record: Record) -> Asked:
    given = dict(record.headers)
    action, target = (given.get("delay-action") or b"schedule").decode(), (given.get("deliver-to") or b"").decode()
    if action == "cancel":
        return Asked(record, action, given["delay-id"], "", None, False)
    at = given.get("deliver-at")
    is_bad = target == ABSENT or (at is not None and not at.isdigit())
    due_ms = None if is_bad else int(at) if at is not None else int(given["delay"] or b"") + record.timestamp_ms
    return Asked(record, action, given.get("delay-id"), target, due_ms, is_bad)


def place_of(text: bytes | str | None) -> Place:
    name = (text.decode() if isinstance(text, bytes) else text or "").rsplit("-", 2)
    return int(name[1]), int(name[2])


class Promises:
    def __init__(self, world: Any) -> None:
        self.world = world
        self._acknowledged: dict[Place, int] = {}
        self._sent: dict[tuple[Place, int], int] = {}  # by origin and timestamp
        self._excused: list[tuple[int, int]] = []  # when order could not be kept
        self.known: dict[Place, Record] = {}  # committed requests that a relay has read: it may cut the input off

    # While it goes on

    def acknowledged(self, number: int, offset: int, record: Record) -> None:
        self._acknowledged[number, offset] = self.world.now

    def no_room(self, until_ns: int) -> None:
        """A disk is full from now on: what is due is delivered, and new requests wait in the input."""
        self._excused.append((self.world.now, until_ns + MOMENTS_NS))

    def silent(self, began_ns: int) -> None:
        """A relay's question had no answer since then: a machine without power says nothing, nor when it is back."""
        if self.world.now - began_ns > MOMENTS_NS:
            self._excused.append((began_ns, self.world.now + MOMENTS_NS))

    def read(self, topic: str, number: int, record: Record) -> None:
        if topic == INPUT:
            self.known[number, record.offset] = record

    def produced(self, process: Any, topic: str, record: Record) -> None:
        """A relay sends something: promise 2."""
        given = dict(record.headers)
        if "delayed-until" not in given or topic.startswith(INPUT):
            return
        due_ms, origin = int(given["delayed-until"] or b""), place_of(given["delayed-from"])
        self._sent[origin, record.timestamp_ms] = self.world.now
        if due_ms > process.latest_ms:
            self.world.problem("early", f"{process.name} sends {origin}, due at {due_ms}, at {process.latest_ms}")

    # In the end

    def missing(self, found: Found) -> list[Place]:
        """What has not been dealt with, or answered, yet."""
        cancelled = {place for places in found.cancelled_by().values() for place in places}
        done = {**found.delivered, **found.dead, **dict.fromkeys(cancelled)}
        return [
            place
            for place, what in found.requests.items()
            if (what.action != "cancel" and place not in done)
            or (what.action != "schedule" and not what.is_bad and place not in found.replies)
        ]

    def check(self, found: Found) -> None:
        self._check_each(found)
        self._check_order(found)
        self._check_answers(found)

    def _problem(self, kind: str, story: str) -> None:
        self.world.problem(kind, story)

    def _check_each(self, found: Found) -> None:
        cancelled = {place: by for by, places in found.cancelled_by().items() for place in places}
        for place, what in found.requests.items():
            came, letters = found.delivered.get(place, []), found.dead.get(place, 0)
            if what.is_bad or what.due_ms is None:
                if came or letters != int(what.is_bad):
                    self._problem("letters", f"{place} has {letters} letters, {len(came)} deliveries: {what}")
                continue
            if len(came) + letters > 1:
                self._problem("twice", f"{place} came {len(came)} times, letters {letters}: {came}")
            if not came and not letters and place not in cancelled:
                self._problem("lost", f"{place}, due at {what.due_ms}: {what.record}")
            for one in came:
                self._check_content(place, what, one)
        for place in (*found.delivered, *found.dead):
            if place not in found.requests:
                self._problem("invented", f"{place} was never asked for")

    def _check_content(self, place: Place, what: Asked, one: Delivered) -> None:
        given, own = what.record, [h for h in one.record.headers if h[0] not in ("delayed-from", "delayed-until")]
        kept = [h for h in given.headers if h[0] == "trace"]
        until = int(dict(one.record.headers)["delayed-until"] or b"")
        if (one.target, one.record.value, one.record.key, own, until) != (
            what.target, given.value, given.key, kept, what.due_ms,
        ):  # fmt: skip
            self._problem("changed", f"{place}: {what} came as {one}")

    def _check_order(self, found: Found) -> None:
        rows: dict[tuple[Any, ...], list[tuple[int, Place, Record]]] = {}
        for place, several in found.delivered.items():
            for one in several:
                due_ms = found.requests[place].due_ms if place in found.requests else None
                if due_ms is not None:
                    row = rows.setdefault((place[0], one.target, one.number), [])
                    row.append((one.record.offset, place, one.record))
        for row in rows.values():
            self._check_row(found, sorted(row, key=lambda each: each[0]))

    def _check_row(self, found: Found, row: list[tuple[int, Place, Record]]) -> None:
        last, sent_ns = (0, 0), 0  # the latest by due time so far, and when it was sent
        for _, place, record in row:
            now = found.requests[place].due_ms or 0, place[1]
            came_ns = self._acknowledged.get(place, self.world.now)
            is_excused = any(begins <= sent_ns and came_ns <= ends for begins, ends in self._excused)
            if now < last and came_ns + MOMENTS_NS < sent_ns and not is_excused:
                self._problem("order", f"{place}, due at {now}, came behind {last}")
            if now > last:
                last, sent_ns = now, self._sent.get((place, record.timestamp_ms), 0)

    def _check_answers(self, found: Found) -> None:
        pending_of = found.cancelled_by()
        for place, what in found.requests.items():
            answers = found.replies.get(place, [])
            wanted = int(what.action != "schedule" and not what.is_bad)
            if len(answers) != wanted:
                self._problem("answers", f"{place} has {len(answers)} of {wanted}: {what}")
            for answer in answers:
                count = len(pending_of.get(place, ()))
                words = self._words(found, place, what, count)
                if answer["count"] != count or answer["outcome"] not in words:
                    self._problem(
                        "untrue", f"{place} {what.action} {what.id!r} was answered {answer}, not {count} {words}"
                    )

    def _words(self, found: Found, place: Place, what: Asked, count: int) -> tuple[str, ...]:
        if count:
            return ("cancelled" if what.action == "cancel" else "replaced",)
        before = [p for p, one in found.requests.items() if one.id == what.id and p[0] == place[0] and p[1] < place[1]]
        messages = [p for p in before if found.requests[p].due_ms is not None]
        delivered = [p for p in messages if p in found.delivered]
        if delivered:
            words: tuple[str, ...] = ("already delivered",)
        else:
            words = ("cancelled",) if messages and what.action == "cancel" else ("unknown",)
        known_in_part = ("unknown", "cancelled", "already delivered")  # of what was cut off nobody knows
        return known_in_part if found.is_cut else words


class Found:
    """What stands in Kafka: `requests` of the input, and what became of each. `is_cut`: the input was cut off."""

    def __init__(self) -> None:
        self.requests: dict[Place, Asked] = {}
        self.delivered: dict[Place, list[Delivered]] = {}
        self.dead: dict[Place, int] = {}
        self.replies: dict[Place, list[dict[str, Any]]] = {}
        self.is_cut = False

    def add_request(self, number: int, record: Record) -> None:
        if "delay-origin" not in dict(record.headers):  # else a copy that was moved on
            self.requests[number, record.offset] = asked(record)

    def add_delivery(self, target: str, number: int, record: Record) -> None:
        origin = place_of(dict(record.headers)["delayed-from"])
        self.delivered.setdefault(origin, []).append(Delivered(target, number, record))

    def add_letter(self, record: Record) -> None:
        origin = place_of(dict(record.headers)["dead-from"])
        self.dead[origin] = self.dead.get(origin, 0) + 1

    def add_reply(self, record: Record) -> None:
        answer = json.loads(record.value or b"")
        self.replies.setdefault(place_of(answer["request"]), []).append(answer)

    def cancelled_by(self) -> dict[Place, list[Place]]:
        """Which messages each command has cancelled: all of its id before it that nobody else had, and that never came."""
        found: dict[Place, list[Place]] = {}
        waiting: dict[tuple[int, bytes | None], list[Place]] = {}
        for place, what in sorted(self.requests.items()):
            known = waiting.setdefault((place[0], what.id), [])
            if what.action != "schedule" and not what.is_bad and place in self.replies:
                found[place] = [one for one in known if one not in self.delivered]
                known.clear()
            if what.due_ms is not None and what.id is not None:
                known.append(place)
        return found
