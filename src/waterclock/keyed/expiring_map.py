"""`ExpiringMap`: a mapping whose entries leave by themselves when their time has come.

    set, at 0, ttl_s = 60     there is an entry, and a timer for 60
    set again, at 40          the entry is due at 100; the timer stays where it is
    60 comes                  the timer finds 100, and waits for that
    100 comes                 the entry leaves, and `on_evict(key, value, "expired")` is called

Rule 1: an entry is read until its time has come, and never from then on, even if the timer is late. But `dict(map)`
    and `{**map}` get all that is there when they begin: copying.py.
Rule 2: it leaves the memory at the timer's tick. Nobody has to read it, and nothing walks through the map.
Rule 3: setting a key starts its time anew, and so does `touch`. Reading does not.
Rule 4: if `max_entries` are there, one more key makes room first: the entry leaves that was set or touched longest ago.
Rule 5: `on_evict` is called for entries that left by themselves, "expired" or "full", once each; not of what its user
    replaced, took out or cleared. It is called without a lock: for "expired" where the timer's callbacks run, for "full"
    by whoever set the new key.
Rule 6: all but iterating, `clear` and copying is O(1). Iterating goes over a copy.
Rule 7: under a `Timer` every method may be called from any thread; under an `AsyncTimer` from its loop's.
Rule 8: the map of a timer that was closed takes no key and touches none; its entries are read as long as they have left.
Rule 9: a forked child has the entries, each for as long as it has left. `on_evict` is called for them in the parent; in the
    child for those that were set or touched there, or made room there.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Hashable, ItemsView, Iterator, KeysView, MutableMapping, ValuesView
from contextlib import suppress
from threading import RLock  # re-entrant: the collector may run a destructor that uses the map, in the middle
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload
from weakref import ref

from waterclock.errors import TimerClosed
from waterclock.keyed.copying import SOON_NS, Copies
from waterclock.timer.drive import driver
from waterclock.timer.driver import nothing
from waterclock.timer.forking import make_new_in_child
from waterclock.timer.units import MOST_NS, nanoseconds, within_reach

if TYPE_CHECKING:
    from waterclock.timer import AsyncTimer, Handle, Timer
    from waterclock.timer.driver import Driver

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
T = TypeVar("T")
Why = Literal["expired", "full"]
NOTHING: Any = object()  # no default was given


class Entry(Generic[K, V]):
    """One key's value, until when it is there, and its timer."""

    __slots__ = ("due_ns", "handle", "key", "map", "value")

    def __init__(self, of: ExpiringMap[K, V], key: K, value: V, due_ns: int) -> None:
        self.map: ExpiringMap[K, V] | None = of  # None: it left
        self.key = key
        self.value = value
        self.due_ns = due_ns
        self.handle: Handle


class ExpiringMap(MutableMapping[K, V]):
    """A mapping whose entries are there for `ttl_s` seconds after they were set; the rules stand in expiring_map.py.

    timer: a `Timer` or an `AsyncTimer`, whose time it is. max_entries: how many are there at most. on_evict: is called with
    key, value and "expired" or "full" for what left by itself; what it raises goes where the timer's errors go.
    `ValueError` for a time or a bound that is no number above zero, `TimerClosed` for a new key after the timer's close.
    Its entries count for the timer's `max_pending` and are never refused by it.

    >>> from waterclock import ManualClock, Timer
    >>> timer = Timer(clock=ManualClock())
    >>> sessions = ExpiringMap(timer, 60, on_evict=print)
    >>> sessions["ann"] = 1
    >>> timer.advance(59.9), sessions["ann"], timer.advance(0.1), sessions.get("ann")
    ann 1 expired
    (0, 1, 1, None)
    """

    __slots__ = ("__weakref__", "_copies", "_entries", "_lock", "_most", "_on_evict", "_timer", "_ttl_ns")

    def __init__(
        self,
        timer: Timer | AsyncTimer,
        ttl_s: float,
        *,
        max_entries: int | None = None,
        on_evict: Callable[[K, V, Why], object] | None = None,
    ) -> None:
        if max_entries is not None and (not isinstance(max_entries, int) or max_entries < 1):
            raise ValueError(f"max_entries must be a whole number from 1, or None, got {max_entries!r}")
        self._timer: Driver = driver(timer)
        if on_evict is not None:
            self._timer.check(on_evict, "on_evict")
        self._ttl_ns = nanoseconds("ttl_s", ttl_s, least=1)
        self._most = max_entries
        self._on_evict = on_evict
        self._entries: OrderedDict[K, Entry[K, V]] = OrderedDict()  # the one that was set or touched longest ago first
        self._after_fork()
        make_new_in_child(self)

    # Reading

    def __getitem__(self, key: K) -> V:
        entry = self._entries.get(key)
        if entry is None or entry.due_ns <= self._timer.now_ns():
            value: V = self._copies.read(key, sys._getframe(1))
            return value
        return entry.value

    def __contains__(self, key: object) -> bool:
        """Whether it is there: set, not taken out, and its time has not come."""
        entry = self._entries.get(key)  # type: ignore[arg-type]
        return entry is not None and entry.due_ns > self._timer.now_ns()

    def __iter__(self) -> Iterator[K]:
        """Over a copy of the keys."""
        return iter([entry.key for entry in self._alive()])

    def keys(self) -> KeysView[K]:
        """The keys of this moment, as a copy; to `dict(map)` their values, too."""
        alive, soon_ns = self._alive(), self._timer.now_ns() + SOON_NS
        self._copies.keep({entry.key: entry.value for entry in alive if entry.due_ns < soon_ns}, sys._getframe(1))
        return dict.fromkeys([entry.key for entry in alive]).keys()

    def items(self) -> ItemsView[K, V]:
        """The keys and values of this moment, as a copy."""
        return {entry.key: entry.value for entry in self._alive()}.items()

    def values(self) -> ValuesView[V]:
        """The values of this moment, as a copy."""
        return {entry.key: entry.value for entry in self._alive()}.values()

    def _alive(self) -> list[Entry[K, V]]:
        with self._lock:
            now_ns = self._timer.now_ns()
            return [entry for entry in self._entries.values() if entry.due_ns > now_ns]

    def __len__(self) -> int:
        """How many are there, with those whose time has come and that the timer, being late, has not taken out yet."""
        return len(self._entries)

    def when(self, key: K) -> float:
        """Until when a key is there, in seconds of `timer.time()`; `KeyError` if it is not."""
        entry = self._entries.get(key)
        if entry is None or entry.due_ns <= self._timer.now_ns():
            raise KeyError(key)
        return entry.due_ns / 1e9

    # Writing

    def __setitem__(self, key: K, value: V) -> None:
        self._set(key, value, self._ttl_ns)

    def set(self, key: K, value: V, ttl_s: float) -> None:
        """As `map[key] = value`, with a time of its own: `ValueError` for one that is no number above zero, or too far."""
        self._set(key, value, nanoseconds("ttl_s", ttl_s, least=1))

    def setdefault(self, key: K, default: V = None) -> V:  # type: ignore[assignment]
        """The key's value, or `default`, which is then set: one step, also among threads."""
        with self._lock:
            try:
                return self[key]
            except KeyError:
                left = self._put(key, default, self._ttl_ns)
        self._report_all(left)
        return default

    def touch(self, key: K, ttl_s: float | None = None) -> bool:
        """Start the key's time anew, with a time of its own if one is given; False if it is not there.

        Errors are those of `set`, and leave the entry as it was.
        """
        ttl_ns = self._ttl_ns if ttl_s is None else nanoseconds("ttl_s", ttl_s, least=1)
        with self._lock:
            entry, now_ns = self._entries.get(key), self._timer.now_ns()
            if entry is None or entry.due_ns <= now_ns:
                return False
            if entry.handle.pending:
                self._renew(entry, now_ns + ttl_ns)
                return True
            left = self._put(key, entry.value, ttl_ns)
        self._report_all(left)
        return True

    def __delitem__(self, key: K) -> None:
        self._take(key)

    @overload
    def pop(self, key: K, /) -> V: ...

    @overload
    def pop(self, key: K, /, default: V | T) -> V | T: ...

    def pop(self, key: K, /, default: Any = NOTHING) -> Any:
        """Take the key out and give its value; if it is not there `default`, or `KeyError` without one."""
        try:
            return self._take(key).value
        except KeyError:
            if default is NOTHING:
                raise
            return default

    def popitem(self) -> tuple[K, V]:
        """Take out the entry that was set or touched last; `KeyError` if the map is empty."""
        with self._lock:
            now_ns = self._timer.now_ns()
            entry = next((one for one in reversed(self._entries.values()) if one.due_ns > now_ns), None)
            if entry is not None:
                self._remove(entry, None)
        if entry is not None:
            self._timer.left()
            return entry.key, entry.value
        raise KeyError("the map is empty")

    def clear(self) -> None:
        """Take everything out; `on_evict` is not called."""
        with self._lock:
            entries, self._entries = self._entries, OrderedDict()
            for entry in entries.values():
                entry.map = None
                entry.handle.cancel()
        self._timer.left()

    # Coming and going

    def _set(self, key: K, value: V, ttl_ns: int) -> None:
        with self._lock:
            left = self._put(key, value, ttl_ns)
        self._report_all(left)

    def _put(self, key: K, value: V, ttl_ns: int) -> list[tuple[K, V, Why | None]]:
        """Under the lock; what left for it, which is to be reported and let go of when the lock is free."""
        entry, now_ns = self._entries.get(key), self._timer.now_ns()
        if entry is not None and entry.due_ns > now_ns and entry.handle.pending:
            self._renew(entry, now_ns + ttl_ns)
            before, entry.value = entry.value, value
            return [(key, before, None)]
        new = Entry(self, key, value, now_ns + ttl_ns)
        new.handle = self._timer.add_and_look(new.due_ns, _lapse, new)
        left: list[tuple[K, V, Why | None]] = []
        if entry is not None:  # its timer is late, or about to call
            left += self._part_with(entry, None, now_ns)
        elif self._most is not None and len(self._entries) >= self._most:
            left += self._part_with(next(iter(self._entries.values())), "full", now_ns)
        self._entries[key] = new
        return left

    def _part_with(self, entry: Entry[K, V], why: Why | None, now_ns: int) -> list[tuple[K, V, Why | None]]:
        """Under the lock. One that has expired is reported by its timer, which is late."""
        if entry.due_ns > now_ns:
            return [self._remove(entry, why)]
        del self._entries[entry.key]
        return []

    def _renew(self, entry: Entry[K, V], due_ns: int) -> None:
        """Under the lock: the timer is moved if it would come too late; else it finds out by itself."""
        if due_ns > MOST_NS:
            within_reach(due_ns)  # raises, as for a new one
        if due_ns < entry.handle.when() * 1e9:
            self._timer.move(entry.handle, due_ns)
        entry.due_ns = due_ns
        self._entries.move_to_end(entry.key)

    def _take(self, key: K) -> Entry[K, V]:
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or entry.due_ns <= self._timer.now_ns():
                raise KeyError(key)
            self._remove(entry, None)
        self._timer.left()
        return entry

    def _remove(self, entry: Entry[K, V], why: Why | None) -> tuple[K, V, Why | None]:
        """Under the lock."""
        entry.map = None  # for a timer that is about to call
        entry.handle.cancel()
        self._entries.pop(entry.key, None)
        return entry.key, entry.value, why

    def _report_all(self, left: list[tuple[K, V, Why | None]]) -> None:
        for key, value, why in left:
            if why is not None and self._on_evict is not None:
                try:
                    self._timer.returned.take(self._on_evict(key, value, why))
                except Exception as error:
                    self._timer.report(error)

    def _after_fork(self) -> None:
        """At the start, and in a forked child: entries stay, and their timers were the parent's (rule 9)."""
        self._lock = RLock()
        self._copies = Copies()
        if self._entries:  # they leave the memory when the child's timer has its turn
            self._timer.add_in_child(self._timer.now_ns() + self._ttl_ns, _sweep, ref(self))

    def __repr__(self) -> str:
        return f"<ExpiringMap, {len(self)} entries, ttl={self._ttl_ns / 1e9}>"

    def __reduce__(self) -> Any:
        raise TypeError(
            "an ExpiringMap is neither copied nor pickled: its entries wait for a timer; dict(map) is a copy"
        )


def _lapse(entry: Entry[Any, Any]) -> None:
    """The moment has come for which the wheel holds an entry."""
    of = entry.map
    if of is None:
        return
    with of._lock:
        if entry.map is None:
            return
        if entry.due_ns > of._timer.now_ns():
            with suppress(TimerClosed):  # rule 8
                entry.handle = of._timer.add_and_look(entry.due_ns, _lapse, entry)
            return
        entry.map = None
        if of._entries.get(entry.key) is entry:
            del of._entries[entry.key]
    if of._copies.kept:
        _let_go(ref(of))
    if of._on_evict is not None:
        of._timer.call(of._on_evict, (entry.key, entry.value, "expired"), nothing)


def _sweep(me: ref[ExpiringMap[Any, Any]]) -> None:
    """In a forked child: let go of entries of the parent's whose time has come; `on_evict` is not called (rule 9)."""
    if (of := me()) is None:
        return
    with of._lock:
        now_ns = of._timer.now_ns()
        inherited = [entry for entry in of._entries.values() if not entry.handle.pending]
        for entry in inherited:
            if entry.due_ns <= now_ns:
                del of._entries[entry.key]
        latest_ns = max((entry.due_ns for entry in inherited), default=now_ns)
        if latest_ns > now_ns:
            with suppress(TimerClosed):
                of._timer.add_and_look(latest_ns, _sweep, me)


def _let_go(me: ref[ExpiringMap[Any, Any]]) -> None:
    """Of what was kept for who copied the map; if somebody still does, later."""
    if (of := me()) is not None and not of._copies.let_go():
        with suppress(TimerClosed):
            of._timer.add_and_look(of._timer.now_ns() + SOON_NS, _let_go, me)
