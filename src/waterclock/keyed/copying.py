"""How `dict(map)` gets every entry of a map whose entries expire: `dict` asks for the keys, and then for one value after
the other. A key whose time comes in between would be a KeyError.

    thread    dict(map)   keys()           the map keeps what was there, for this thread and this instruction
    timer                                  an entry expires, and leaves
    thread                map["gone"]      the same instruction of the same frame: the value that was there
    thread    map["gone"]                  another instruction: KeyError

Rule 1: what is kept is read by the very instruction that asked for the keys, and by nobody else: not a moment longer than
    the copy takes. `{**map}`, `call(**map)` and `other.update(map)` are one instruction, too.
Rule 2: it is let go of by the timer's next turn after KEPT_NS, or later where the copy still goes on.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable
from threading import get_ident
from types import FrameType
from typing import Any, Final

KEPT_NS: Final = 1_000_000_000


class Copies:
    """Of one map: by thread, what was there when it asked for the keys."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[int, tuple[int, Any, dict[Any, Any]]] = {}

    def keep(self, entries: dict[Any, Any], frame: FrameType) -> bool:
        """Keep them for an instruction of this thread; False where something was kept before, and will be let go of."""
        first = get_ident() not in self._kept
        self._kept[get_ident()] = (*_place(frame), entries)
        return first

    def read(self, key: Hashable, frame: FrameType) -> Any:
        """What the same instruction was given the key of; `KeyError` for another one."""
        if self._kept:
            kept = self._kept.get(get_ident())
            if kept is not None and kept[:2] == _place(frame):
                return kept[2][key]
        raise KeyError(key)

    def let_go(self, thread: int) -> bool:
        """False where the thread copies still."""
        frame, kept = sys._current_frames().get(thread), self._kept.get(thread)
        while frame is not None and kept is not None:
            if kept[:2] == _place(frame):
                return False
            frame = frame.f_back
        self._kept.pop(thread, None)
        return True


def _place(frame: FrameType) -> tuple[int, tuple[Any, int]]:
    return id(frame), (frame.f_code, frame.f_lasti)
