"""The bytes of an array wheel (semantics.md, section 2, promise 6): one format, two implementations, no surprises."""

from __future__ import annotations

import copy
import pickle
import random
from typing import Any

import pytest

from tests.wheel.array_wheels import ARRAY_WHEELS, Make, advance, cancel, schedule
from waterclock.wheel import saved

both = pytest.mark.parametrize("make", ARRAY_WHEELS)
each_other = pytest.mark.parametrize("load", ARRAY_WHEELS)


def lived(make: Make, tick: int = 1, start: int = 0) -> Any:
    """A wheel with all there can be: due ones held back, late ones, some on every level, free and used places."""
    wheel, choose = make(tick, start), random.Random(7)
    ids = schedule(wheel, *[start + int(2 ** choose.uniform(0, 40)) for _ in range(600)])
    cancel(wheel, *choose.sample(ids, 200))
    wheel.advance(start + 3000, 20)
    schedule(wheel, start + 5, start + 2_000, start + 3000, start + 3001)
    wheel.advance(start + 3500, 3)
    schedule(wheel, start + 1, start + 4000, start + 4000)
    return wheel


def rest(wheel: Any) -> list[Any]:
    """All that a wheel does from here, ids of new timers included."""
    done: list[Any] = []
    while (to := wheel.next_deadline()) is not None:
        due, deadlines = wheel.advance(to + 50, 40)
        done.append((due.tolist(), deadlines.tolist(), wheel.now))
        if len(done) % 5 == 0 and len(done) < 60:
            done.append(schedule(wheel, wheel.now, wheel.now + 7000))
            done.append(cancel(wheel, *range(1, 700, 13)))
        wheel._check()
    return done


@both
@each_other
@pytest.mark.parametrize(("tick", "start"), [(1, 0), (10, -1003), (1, 2**61), (1000, 7)])
def test_a_loaded_wheel_goes_on_as_the_wheel_itself_whichever_implementation_saved_it(
    make: Make, load: Make, tick: int, start: int
) -> None:
    wheel = lived(make, tick, start)
    loaded = load.from_bytes(wheel.to_bytes())  # type: ignore[attr-defined]
    loaded._check()
    assert (loaded.now, len(loaded), loaded.next_deadline()) == (wheel.now, len(wheel), wheel.next_deadline())
    before, after = wheel.statistics(), loaded.statistics()
    assert (before.added, before.fired, before.cancelled) == (after.added, after.fired, after.cancelled)
    assert rest(loaded) == rest(wheel)


@both
def test_saving_changes_nothing(make: Make) -> None:
    wheel, untouched = lived(make), lived(make)
    first = wheel.to_bytes()
    assert wheel.to_bytes() == first
    assert rest(wheel) == rest(untouched)


@both
def test_an_empty_wheel_is_saved_too(make: Make) -> None:
    wheel = make.from_bytes(make(10, -55).to_bytes())  # type: ignore[attr-defined]
    assert (wheel.now, len(wheel), wheel.next_deadline()) == (-55, 0, None)
    assert schedule(wheel, -54) == [1]
    assert (advance(wheel, -51), advance(wheel, -50)) == ([], [-54])


@both
@each_other
def test_an_id_comes_again_when_all_2_31_generations_of_its_place_have_passed(wheel: Any, load: Make) -> None:
    (first,) = schedule(wheel, 5)
    assert cancel(wheel, first) == [True]
    wheel = load.from_bytes(altered(wheel.to_bytes(), -4 - saved.DIGEST, (2**31 - 1).to_bytes(4, "little")))  # type: ignore[attr-defined]
    (last,) = schedule(wheel, 5)
    assert last == (2**31 - 1 << 32) + 1
    assert cancel(wheel, first, last, last) == [False, True, False]
    assert schedule(wheel, 5) == [first]


@both
def test_a_wheel_is_copied_and_pickled_whole(make: Make) -> None:
    wheel = lived(make)
    twins = [copy.copy(wheel), copy.deepcopy(wheel), pickle.loads(pickle.dumps(wheel))]
    expected = rest(wheel)
    assert [rest(twin) for twin in twins] == [expected] * 3


@both
def test_any_buffer_of_bytes_is_loaded_and_nothing_else(make: Make) -> None:
    load, blob = make.from_bytes, lived(make).to_bytes()  # type: ignore[attr-defined]
    for given in (bytearray(blob), memoryview(blob), memoryview(b"x" + blob)[1:]):
        assert rest(load(given)) == rest(load(blob))
    for wrong in ("text", 5, None, [1]):
        with pytest.raises(TypeError, match="blob must be bytes"):
            load(wrong)


# Bytes that are wrong


@both
def test_bytes_that_are_no_wheel_or_of_another_version_are_refused_by_their_name(make: Make) -> None:
    load, blob = make.from_bytes, make().to_bytes()  # type: ignore[attr-defined]
    for wrong in (b"", b"x", b"wcarrays", bytes(200), blob[1:], b"x" + blob):
        with pytest.raises(ValueError, match="does not begin with its mark"):
            load(wrong)
    with pytest.raises(ValueError, match="version 2, this waterclock reads version 1"):
        load(altered(blob, 8, b"\x02"))


@both
def test_cut_bytes_and_bytes_with_more_behind_are_refused(make: Make) -> None:
    load, blob = make.from_bytes, lived(make).to_bytes()  # type: ignore[attr-defined]
    for end in [*range(200), *range(200, len(blob), 97), len(blob) - 1]:
        with pytest.raises(ValueError, match="blob"):
            load(blob[:end])
    with pytest.raises(ValueError, match="cut or altered"):
        load(blob + b"\0")


@both
def test_every_single_altered_byte_is_noticed(make: Make) -> None:
    wheel = make()
    cancel(wheel, *schedule(wheel, 5, 70_000, 6)[:1])
    load, blob = make.from_bytes, wheel.to_bytes()  # type: ignore[attr-defined]
    for place in range(len(blob)):
        with pytest.raises(ValueError, match="blob"):
            load(blob[:place] + bytes([blob[place] ^ 1 << place % 8]) + blob[place + 1 :])


def altered(blob: bytes, place: int, new: bytes) -> bytes:
    """Bytes whose checksum is right, and whose content is not what a wheel would write."""
    content = bytearray(blob)
    content[place : place + len(new)] = new
    return bytes(content[: -saved.DIGEST]) + saved.digest(content[: -saved.DIGEST])


# in these bytes: pending 1, 2 (due) and 4; free 3
WRONG = {
    "more due than pending": (12, 4),
    "an index twice": (saved.HEADER + 24, 2),
    "an index of nobody": (saved.HEADER + 24, 9),
    "index zero": (saved.HEADER + 24, 0),
    "a pending index free": (saved.HEADER + 36, 4),
    "a free index of nobody": (saved.HEADER + 36, 2**32 - 1),
    "a generation of 32 bits": (saved.HEADER + 40, 2**31),
    "a due deadline in the future": (saved.HEADER, 11),
    "a waiting deadline in the past": (saved.HEADER + 16, 10),
    "tick zero": (24, 0),
}


@both
@pytest.mark.parametrize("wrong", WRONG)
def test_bytes_that_contradict_themselves_are_refused_though_their_checksum_is_right(make: Make, wrong: str) -> None:
    wheel = make()
    cancel(wheel, schedule(wheel, 5, 6, 7, 70_000)[2])
    wheel.advance(10, 0)
    blob, (place, number) = wheel.to_bytes(), WRONG[wrong]
    assert make.from_bytes(altered(blob, 0, b"wcarrays")).to_bytes() == blob  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="altered"):
        make.from_bytes(altered(blob, place, number.to_bytes(4, "little")))  # type: ignore[attr-defined]


@both
@pytest.mark.parametrize("seed", range(300))
def test_garbage_with_a_right_checksum_is_refused_or_makes_a_whole_wheel(make: Make, seed: int) -> None:
    choose, wheel = random.Random(seed), make()
    cancel(wheel, *schedule(wheel, *[choose.randrange(10**6) for _ in range(30)])[::3])
    wheel.advance(1000, 5)
    blob = wheel.to_bytes()
    for _ in range(choose.randrange(1, 4)):
        blob = altered(blob, choose.randrange(12, len(blob) - saved.DIGEST), choose.randbytes(choose.choice([1, 4, 8])))
    try:
        loaded = make.from_bytes(blob)  # type: ignore[attr-defined]
    except ValueError:
        return
    loaded._check()
    loaded.advance(2**62)
    loaded._check()
