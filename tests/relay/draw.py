"""What may happen in a life of the relay, drawn from a seed: plain values, whatever became of the steps before."""

from __future__ import annotations

import random
from typing import Any, Final, NamedTuple

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
IDS: Final = ("a", "b", "c", "ü")
KEYS: Final = (None, b"", b"k", b"l")
EXTRA: Final[tuple[list[tuple[str, bytes | None]], ...]] = (
    [],
    [("trace", b"x"), ("trace", None), ("", b"")],
    [("delayed-from", b"elsewhere-0-1"), ("delayed-until", b"7"), ("trace", b"\xff")],
)
TURN: Final = ("answer", "take", "read", "deliver", "settle", "send_position", "commit", "apply")  # relay/owner/turn.py
BAD: Final = (
    "no target",
    "no time",
    "both times",
    "words",
    "no delay",
    "negative",
    "no number",
    "empty id",
    "long id",
    "strange id",
    "strange action",
    "cancel nothing",
    "twice",
    "nobody's topic",
    "own topic",
    "own replies",
    "no name",
    "nothing at all",
    "replace for nobody",
)


class Step(NamedTuple):
    """A method of `Life`, and what it gets."""

    verb: str
    arguments: tuple[Any, ...] = ()


class Asked(NamedTuple):
    """What somebody asks for. `round_ms`: the due time is a multiple of it, so that many are equal."""

    action: str
    partition: int
    count: int = 1
    in_ms: int = 0
    round_ms: int = 1
    form: str = "deliver-at"
    age_ms: int = 0
    target: int = 0
    id: str = ""
    key: bytes | None = None
    size: int | None = 0  # of the value, None for none
    extra: int = 0
    fault: str = ""

    @property
    def value(self) -> bytes | None:
        return None if self.size is None else bytes(number * 7 % 256 for number in range(self.size))

    def due_ms(self, now_ms: int) -> int:
        return (now_ms + self.in_ms) // self.round_ms * self.round_ms

    def headers(self, target: str, due_ms: int, stamp_ms: int, topic: str) -> list[tuple[str, bytes | None]]:
        """The record's; a time before its timestamp cannot be said as a delay."""
        made: list[tuple[str, bytes | None]] = list(EXTRA[self.extra])
        if self.action != "cancel":
            delay = self.form == "delay" and due_ms >= stamp_ms
            said = ("delay", due_ms - stamp_ms) if delay else ("deliver-at", due_ms)
            made += [("deliver-to", target.encode()), (said[0], str(said[1]).encode())]
        if self.action in ("cancel", "replace"):
            made.append(("delay-action", self.action.encode()))
        if self.id:
            made.insert(self.extra % (len(made) + 1), ("delay-id", self.id.encode()))
        return _spoiled(self.fault, made, topic) if self.fault else made


def _spoiled(fault: str, headers: list[tuple[str, bytes | None]], topic: str) -> list[tuple[str, bytes | None]]:
    """A good request in which one thing is wrong."""
    without: dict[str, tuple[str, ...]] = {
        "no target": ("deliver-to",),
        "no time": ("deliver-at", "delay"),
        "nothing at all": tuple(name for name, _ in headers),
    }
    put: dict[str, dict[str, bytes | None]] = {
        "both times": {"deliver-at": b"1", "delay": b"1"},
        "words": {"deliver-at": b"tomorrow"},
        "no delay": {"delay": None},
        "negative": {"deliver-at": b"-1"},
        "no number": {"deliver-at": b""},
        "empty id": {"delay-id": b""},
        "long id": {"delay-id": b"x" * 256},
        "strange id": {"delay-id": b"\xff"},
        "strange action": {"delay-action": b"forget"},
        "nobody's topic": {"deliver-to": b"nobody"},
        "own topic": {"deliver-to": topic.encode()},
        "own replies": {"deliver-to": f"{topic}.replies".encode()},
        "no name": {"deliver-to": b"no/name"},
        "replace for nobody": {"deliver-to": b"nobody", "delay-action": b"replace", "delay-id": b"a"},
    }
    if fault == "cancel nothing":
        return [("delay-action", b"cancel")]
    if fault == "twice":
        return [*headers, headers[-1]]
    new = put.get(fault, {})
    times = {"deliver-at", "delay"}
    gone = {*new, *without.get(fault, ()), *(times if times & new.keys() else ())}
    return [*(one for one in headers if one[0] not in gone), *new.items()]


def lives(seed: int, count: int) -> list[Step]:
    """So many steps."""
    rng = random.Random(seed)
    verbs, weights = zip(*_WEIGHTS.items(), strict=True)
    return [step for verb in rng.choices(verbs, weights, k=count) for step in _STEPS[verb](rng)]


def _asked(rng: random.Random, action: str) -> Asked:
    named = action != "schedule" or rng.random() < 0.6
    return Asked(
        action,
        rng.randrange(4),
        count=rng.choice((1, 1, 1, 2, 5)) if action == "schedule" else 1,
        in_ms=_in_ms(rng),
        round_ms=rng.choice((1, 1, 1_000, 60_000)),
        form=rng.choice(("deliver-at", "delay")),
        age_ms=rng.choice((0, 0, 1_000, HOUR_MS)),
        target=rng.randrange(2),
        id=rng.choice(IDS) if named else "",
        key=rng.choice(KEYS),
        size=rng.choice((None, 0, 1, 30, 300, 3_000)),
        extra=rng.randrange(len(EXTRA)),
    )


def _in_ms(rng: random.Random) -> int:
    near_edge = rng.choice((600_000, HOUR_MS, DAY_MS, 31 * DAY_MS, 366 * DAY_MS))
    return rng.choice(
        (
            -rng.randrange(10 * DAY_MS),
            0,
            rng.randrange(5),
            rng.randrange(5_000),
            rng.randrange(5_000),
            rng.randrange(HOUR_MS),
            near_edge + rng.randrange(-2, 3),
            rng.randrange(3 * DAY_MS),
            rng.randrange(400 * DAY_MS),
            rng.randrange(10**13),
        )
    )


def _bad(rng: random.Random) -> list[Step]:
    asked = _asked(rng, "schedule")._replace(fault=rng.choice(BAD), action="bad", count=1)
    return [Step("ask", (asked,))]


def _harm(rng: random.Random) -> list[Step]:
    """A crash, something that befalls the files, and a start."""
    place = _place(rng)
    how = rng.choice(("all", "gone", "gone", "cut", "flip", "older", "old"))
    harm = Step("put_back", (place,)) if how == "old" else Step("harm", (place, how, rng.random()))
    return [Step("crash", (place,)), harm, Step("start", (place, rng.random() < 0.7))]


def _wait(rng: random.Random) -> int:
    return rng.choice((1, 100, rng.randrange(5_000), HOUR_MS, rng.randrange(2 * DAY_MS), rng.randrange(100 * DAY_MS)))


def _set_clock(rng: random.Random) -> int:
    size = rng.choice((1, 50, 3_000, 20_000, 2 * HOUR_MS, 40 * DAY_MS))
    return rng.choice((-1, 1)) * size


def _place(rng: random.Random) -> str:
    return rng.choice(("one", "one", "two"))


_WEIGHTS: Final = {
    "schedule": 30,
    "cancel": 10,
    "replace": 8,
    "bad": 4,
    "wait": 8,
    "wait_for_next": 12,
    "set_clock": 4,
    "rest": 12,
    "go": 10,
    "crash": 5,
    "die": 6,
    "start": 6,
    "close": 2,
    "checkpoint": 5,
    "copy": 3,
    "harm": 4,
}
_STEPS: Final = {
    "schedule": lambda rng: [Step("ask", (_asked(rng, "schedule"),))],
    "cancel": lambda rng: [Step("ask", (_asked(rng, "cancel"),))],
    "replace": lambda rng: [Step("ask", (_asked(rng, "replace"),))],
    "bad": _bad,
    "wait": lambda rng: [Step("wait", (_wait(rng),))],
    "wait_for_next": lambda rng: [Step("wait_for_next", (rng.choice((-1, 0, 0, 0, 1)),)), Step("rest")],
    "set_clock": lambda rng: [Step("set_clock", (_set_clock(rng),))],
    "rest": lambda rng: [Step("rest")],
    "go": lambda rng: [Step("go", (rng.randrange(1, 20),))],
    "crash": lambda rng: [Step("crash", (_place(rng),))],
    "die": lambda rng: [Step("die", (rng.choice(TURN), rng.random() < 0.5))],
    "start": lambda rng: [Step("start", (_place(rng), rng.random() < 0.7))],
    "close": lambda rng: [Step("close", (_place(rng),))],
    "checkpoint": lambda rng: [Step("checkpoint"), Step("go", (rng.randrange(1, 6),))],
    "copy": lambda rng: [Step("copy", (_place(rng),))],
    "harm": _harm,
}
