"""A fault that happens: where its choices come from, and the line of the product that it hit."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from random import Random

    from tests.simulation.node import Node
    from tests.simulation.plan import Fault
    from tests.simulation.universe import Universe


@dataclass
class Struck:
    """What a fault did, and where."""

    number: int
    at_ns: int
    what: str
    where: str
    place: str


class Strike:
    """A fault that happens."""

    def __init__(self, universe: Universe, fault: Fault) -> None:
        self.universe, self.world, self.fault = universe, universe.world, fault
        self.rng: Random = universe.plan.stream(f"fault {fault.number}")

    def node(self) -> Node:
        return self.rng.choice(self.universe.nodes)

    def later(self, least_ns: int, most_ns: int, deed: Callable[..., object], *args: object) -> None:
        self.world.at(self.world.now + self.rng.randrange(least_ns, most_ns), deed, *args)

    def tell(self, what: str, where: str = "", process: Any = None) -> None:
        self.universe.count(what)
        struck = Struck(self.fault.number, self.world.now, what, where, place(process))
        self.universe.struck.append(struck)


def place(process: Any) -> str:
    """The product's lines that a process stands in: of the call that runs, or of every thread that is in a system call."""
    if process is None:
        return ""
    if process.world.thread is not None and process.world.thread.process is process:
        return _line(sys._getframe())
    standing = (_line(thread._greenlet.gr_frame) for thread in process.threads if not thread.done)
    return "; ".join(dict.fromkeys(filter(None, standing)))


def _line(frame: FrameType | None) -> str:
    """The innermost line of the product, if there is one."""
    while frame is not None:
        path = frame.f_code.co_filename
        if "/waterclock/" in path and "/simulation/" not in path:
            return f"{path[path.rindex('/waterclock/') + 1 :]}:{frame.f_lineno} {frame.f_code.co_name}"
        frame = frame.f_back
    return ""
