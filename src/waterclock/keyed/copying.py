"""How `dict(map)` gets every entry of a map whose entries expire: `dict` asks for the keys, and then for one value after
the other. A key whose time comes in between would be a KeyError.

    thread    dict(map)   keys()           the map keeps what was there, for this thread and this instruction
    timer                                  an entry expires, and leaves
    thread                map["gone"]      the same instruction of the same frame: the value that was there
    thread    map["gone"]                  another instruction: KeyError

Rule 1: what is kept is read by the very instruction that asked for the keys, and by nobody else: not a moment longer than
    the copy takes. `{**map}`, `call(**map)` and `other.update(map)` are one instruction, too.
Rule 2: only what may expire on the way is kept, what is due within SOON_NS. With its last entry that expires it is let go
    of, or, if the copy still goes on, a while after it.

To look at the caller's frame is no plain way; there is none. `dict` makes a list of all keys before it reads the first
value, so no view and no iterator of ours is alive by then. And a thread that listed the keys, and reads one of them later,
must not get what has expired: rule 1 of expiring_map.py. The two differ in nothing but the instruction that asks.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable
from threading import RLock, get_ident
from types import FrameType
from typing import Any, Final

SOON_NS: Final = 60_000_000_000


class Copies:
    """Of one map: by thread, what was there when it asked for the keys, and is due soon."""

    __slots__ = ("_lock", "kept")

    def __init__(self) -> None:
        self._lock = RLock()
        self.kept: dict[int, tuple[int, Any, dict[Any, Any]]] = {}

    def keep(self, entries: dict[Any, Any], frame: FrameType) -> None:
        """Keep them for an instruction of this thread."""
        with self._lock:
            if entries:
                self.kept[get_ident()] = (*_place(frame), entries)
            else:
                self.kept.pop(get_ident(), None)

    def read(self, key: Hashable, frame: FrameType) -> Any:
        """What the same instruction was given the key of; `KeyError` for another one, for which nothing is kept."""
        if self.kept:
            kept = self.kept.get(get_ident())
            if kept is not None and kept[:2] == _place(frame):
                return kept[2][key]
        raise KeyError(key)

    def let_go(self) -> bool:
        """Of all that nobody reads any more; False if a copy still goes on."""
        for thread in tuple(self.kept):
            with self._lock:  # else the thread begins its next copy here, and loses that one
                if thread in self.kept and not self._goes_on(thread):
                    del self.kept[thread]
        return not self.kept

    def _goes_on(self, thread: int) -> bool:
        place, frame = self.kept[thread][:2], sys._current_frames().get(thread)
        while frame is not None and _place(frame) != place:
            frame = frame.f_back
        return frame is not None


def _place(frame: FrameType) -> tuple[int, tuple[Any, int]]:
    return id(frame), (frame.f_code, frame.f_lasti)
