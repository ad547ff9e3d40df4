"""Looking at a map whose entries expire, and then taking: `dict(map)`, `popitem`, `clear` (keyed/copying.py)."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any
from weakref import ref

import pytest

from tests.timer.timers import by_hand, every_driver
from waterclock import ExpiringMap, Timer
from waterclock.keyed.copying import Copies


class Key:
    """A key that turns the clock when it is looked up: time passes between any two steps."""

    seconds = 0.0

    def __init__(self, name: str, timer: Any) -> None:
        self.name, self.timer = name, timer

    def __hash__(self) -> int:
        self.timer._clock.advance_s(Key.seconds)
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.name == other.name


@pytest.fixture
def time_passes() -> Iterator[Callable[[float], None]]:
    def pass_by(seconds: float) -> None:
        Key.seconds = seconds

    yield pass_by
    Key.seconds = 0.0


def collect(**named: Any) -> dict[str, Any]:
    return named


@every_driver
def test_a_copy_holds_all_that_was_there_when_it_began(timer: Any, time_passes: Callable[[float], None]) -> None:
    for copy in (lambda m: dict(m), lambda m: {**m}, lambda m: collected(m), lambda m: dict(m.items())):
        entries: ExpiringMap[Key, int] = ExpiringMap(timer, 5)
        for number in range(5):
            entries[Key(str(number), timer)] = number
        time_passes(2)
        assert sorted(copy(entries).values()) == [0, 1, 2, 3, 4]  # type: ignore[no-untyped-call]
        time_passes(0)
        timer.advance(100)
        assert (len(entries), entries._copies.kept) == (0, {})


def collected(entries: Any) -> Any:
    made: dict[Any, int] = {}
    made.update(entries)
    return made


@every_driver
def test_what_was_listed_is_not_read_by_another_instruction_when_its_time_has_come(timer: Any) -> None:
    entries: ExpiringMap[str, int] = ExpiringMap(timer, 5)
    entries["a"] = 1
    assert list(entries.keys()) == ["a"]
    timer._clock.advance_s(5)
    with pytest.raises(KeyError, match="'a'"):
        entries["a"]
    assert (entries.get("a"), "a" in entries, dict(entries), collect(**entries)) == (None, False, {}, {})


def test_what_a_copy_kept_is_let_go_of_with_the_last_entry_that_expires() -> None:
    class Value:
        pass

    timer = by_hand(Timer)
    entries: ExpiringMap[str, Value] = ExpiringMap(timer, 5)
    entries["a"] = Value()
    weak = ref(entries["a"])
    size = len(dict(entries))
    gc.disable()
    try:
        timer.advance(5)
        assert (weak(), size, len(timer)) == (None, 1, 0)
    finally:
        gc.enable()


def test_threads_copy_a_map_whose_entries_expire_without_end() -> None:
    switched, raised, stop = sys.getswitchinterval(), list[Exception](), threading.Event()
    sys.setswitchinterval(1e-5)
    try:
        with Timer(tick_s=0.0001) as timer:
            entries: ExpiringMap[int, int] = ExpiringMap(timer, 0.001)

            def fill() -> None:
                number = 0
                while not stop.is_set():
                    entries[number % 500] = number = number + 1

            thread = threading.Thread(target=fill)
            thread.start()
            for _ in range(300):
                try:
                    dict(entries), {**entries}
                    entries.popitem()
                except Exception as error:
                    raised += [error] if error.args != ("the map is empty",) else []
            stop.set()
            thread.join()
    finally:
        sys.setswitchinterval(switched)
    assert raised == []


def test_an_entry_whose_time_comes_while_it_is_looked_at_is_passed_over(time_passes: Callable[[float], None]) -> None:
    timer = by_hand(Timer)
    entries: ExpiringMap[Key, int] = ExpiringMap(timer, 100)
    entries.set(Key("long", timer), 1, 1000)
    entries[Key("short", timer)] = 2
    time_passes(60)
    assert entries.popitem()[1] == 2  # it was there when it was asked
    assert entries.popitem()[1] == 1


@every_driver
@pytest.mark.parametrize("far", [1e18, 4.6e9, float("nan"), float("inf"), 0, -1])
def test_a_time_that_is_refused_changes_nothing_whatever_the_verb(timer: Any, far: float) -> None:
    timer.advance(2e7)  # so that 4.6e9 seconds more lie beyond what a wheel holds
    told: list[Any] = []
    entries: ExpiringMap[str, int] = ExpiringMap(timer, 60, on_evict=lambda *line: told.append(line))
    entries["a"] = 1
    verbs = (lambda: entries.touch("a", far), lambda: entries.set("a", 2, far), lambda: entries.set("b", 2, far))
    for verb in verbs:
        with pytest.raises(ValueError, match=r"ttl_s must be|deadline must lie within"):
            verb()
        assert (dict(entries), entries.when("a"), len(timer)) == ({"a": 1}, 2e7 + 60, 1)
    timer.advance(60)
    assert (told, len(entries), len(timer)) == ([("a", 1, "expired")], 0, 0)


def test_what_is_cleared_while_its_timer_is_about_to_call_is_not_told() -> None:
    told: list[Any] = []
    timer = by_hand(Timer)
    entries: ExpiringMap[str, int] = ExpiringMap(timer, 5, on_evict=lambda *line: told.append(line))
    entries["a"] = 1
    handle = entries._entries["a"].handle
    thread = threading.Thread(target=timer.advance, args=(5,))
    with entries._lock:
        thread.start()
        while handle.pending:  # until its timer waits for the lock
            threading.Event().wait(0.001)
        entries.clear()
    thread.join()
    assert told == []


def test_the_next_copy_of_a_thread_is_not_let_go_of_with_its_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """The timer saw that the last copy had ended; the thread began the next one; the timer took that one away."""
    copies, begins, read = Copies(), threading.Event(), list[object]()

    def copy() -> None:
        frame = sys._getframe()
        copies.keep({"last": 1}, frame)
        begins.wait(10)
        copies.keep({"next": 2}, frame)
        kept.set()
        let_go.wait(10)
        read.append(copies.kept.get(threading.get_ident(), (0, 0, {}))[2])

    def ended(self: Copies, thread: int) -> bool:
        begins.set()
        kept.wait(0.2)
        return False

    kept, let_go, thread = threading.Event(), threading.Event(), threading.Thread(target=copy)
    monkeypatch.setattr(Copies, "_goes_on", ended)
    thread.start()
    while not copies.kept:
        pass
    copies.let_go()
    kept.wait(10)
    let_go.set()
    thread.join()
    assert read == [{"next": 2}]
