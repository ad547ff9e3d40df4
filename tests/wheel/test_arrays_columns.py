"""What goes into an array wheel and comes out (semantics.md, section 2, promise 1), also as bytes (promise 6): one
format, two implementations, no surprises; threads at its door (promise 5).
"""

from __future__ import annotations

import copy
import ctypes
import pickle
import random
import subprocess
import sys
import threading
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.test_import import BLOCK
from tests.wheel.array_wheels import ARRAY_WHEELS, Make, advance, cancel, row, schedule
from waterclock.wheel import plain_arrays, saved

try:
    import numpy as np
except ImportError:
    np = None  # type: ignore[assignment]

both = pytest.mark.parametrize("make", ARRAY_WHEELS)
with_numpy = pytest.mark.skipif(np is None, reason="is about NumPy")


@both
@with_numpy
def test_with_numpy_arrays_go_in_and_come_out(wheel: Any) -> None:
    ids = wheel.schedule(np.arange(5, 0, -1))
    done = wheel.cancel(ids[2:4])
    due, deadlines = wheel.advance(10)
    assert [(column.dtype.str, column.shape) for column in (ids, done, due, deadlines)] == [
        ("<i8" if sys.byteorder == "little" else ">i8", (5,)),
        ("|b1", (2,)),
        (ids.dtype.str, (3,)),
        (ids.dtype.str, (3,)),
    ]
    assert (done.tolist(), due.tolist(), deadlines.tolist()) == ([True, True], ids[[4, 1, 0]].tolist(), [1, 4, 5])
    for column in (ids, done, due, deadlines):
        column[:] = 0  # they are the caller's own
        assert column.base is None


@both
@with_numpy
def test_what_comes_out_of_a_bucket_that_is_due_in_part_is_no_view_of_something_longer(wheel: Any) -> None:
    wheel.schedule(np.array([300, 400, 310]))
    assert [(column.tolist(), column.base) for column in wheel.advance(350)] == [([1, 3], None), ([300, 310], None)]


@both
@pytest.mark.skipif(np is not None, reason="is about its absence")
def test_without_numpy_arrays_of_the_standard_library_come_out(wheel: Any) -> None:
    ids = wheel.schedule(row(3, 1, 2))
    done = wheel.cancel(array("q", [ids[0], 77]))
    assert (type(ids), ids.typecode, type(done), done) == (array, "q", bytes, b"\x01\x00")
    due, deadlines = wheel.advance(5)
    assert (due, deadlines) == (array("q", [ids[1], ids[2]]), array("q", [1, 2]))
    assert wheel.cancel(row(1)) == wheel.cancel(row(2)) == b"\x00"  # bytes of one are shared in Python: not these


BUFFERS: dict[str, Callable[[], Any]] = {
    "array of q": lambda: array("q", [7, 5]),
    "array of l": lambda: array("l", [7, 5]),
    "memoryview": lambda: memoryview(array("q", [1, 7, 5]))[1:],
    "strided memoryview": lambda: memoryview(array("q", [7, 1, 5]))[::2],
    "ctypes": lambda: (ctypes.c_int64 * 2)(7, 5),
    "unsigned": lambda: array("Q", [7, 5]),
    "read-only": lambda: memoryview(array("q", [7, 5]).tobytes()).cast("q"),
}


@both
@pytest.mark.parametrize("buffer", BUFFERS)
def test_any_buffer_of_64_bit_integers_is_taken(wheel: Any, buffer: str) -> None:
    ids = wheel.schedule(BUFFERS[buffer]())
    assert len(ids) == 2
    assert list(wheel.cancel(BUFFERS[buffer]())) == [False, False]
    assert advance(wheel, 9) == [5, 7]


@both
@with_numpy
def test_numpy_arrays_of_any_stride_are_taken_and_not_changed(make: Make) -> None:
    wheel, given = make(), np.arange(10)
    ids = wheel.schedule(given[::-3])
    given.flags.writeable = False
    assert wheel.cancel(ids[::2]).tolist() == [True, True]
    assert (wheel.advance(20)[1].tolist(), given.tolist()) == ([0, 6], list(range(10)))


@both
def test_an_unsigned_deadline_beyond_the_signed_ones_is_out_of_range_and_such_an_id_unknown(wheel: Any) -> None:
    with pytest.raises(ValueError, match=f"got {2**64 - 1}$"):
        wheel.schedule(array("Q", [5, 2**64 - 1]))
    schedule(wheel, 5)
    assert list(wheel.cancel(array("Q", [2**63 + 1, 1]))) == [False, True]


WRONG: dict[str, Callable[[], Any]] = {
    "a list": lambda: [1, 2],
    "a number": lambda: 5,
    "nothing": lambda: None,
    "text": lambda: "12345678",
    "bytes": lambda: b"12345678",
    "32 bits": lambda: array("i", [1, 2]),
    "floats": lambda: array("d", [1.0]),
    "two dimensions": lambda: memoryview(bytes(32)).cast("q", (2, 2)),
    "no dimension": lambda: ctypes.c_int64(5),
}


@both
@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_no_row_of_64_bit_integers_is_a_type_error_that_names_the_argument(wheel: Any, wrong: str) -> None:
    with pytest.raises(TypeError, match="deadlines must be one row of 64-bit integers"):
        wheel.schedule(WRONG[wrong]())
    with pytest.raises(TypeError, match="ids must be one row of 64-bit integers"):
        wheel.cancel(WRONG[wrong]())
    assert len(wheel) == 0


@both
@with_numpy
@pytest.mark.parametrize("dtype", ["float64", "int32", "bool", "datetime64[ns]", "object", ">i8"])
def test_numpy_arrays_of_another_type_are_not_converted(make: Make, dtype: str) -> None:
    if sys.byteorder == "big" and dtype == ">i8":
        pytest.skip("is this machine's own")
    with pytest.raises(TypeError, match="64-bit integers"):
        make().schedule(np.zeros(3, dtype))


@pytest.mark.skipif(np is None, reason="is run from where there is NumPy")
@pytest.mark.long(seconds=5)
def test_the_suites_hold_where_numpy_cannot_be_imported(request: pytest.FixtureRequest) -> None:
    files = [str(path) for path in sorted(Path(__file__).parent.glob("test_arrays_*.py")) if "model" not in path.name]
    script = BLOCK.replace('not in {*sys.stdlib_module_names, "waterclock"}', '== "numpy"')
    script += "import pytest; sys.exit(pytest.main(sys.argv[1:]))"
    options = ["-q", "-p", "no:cacheprovider", "-m", "not long and not memory", *files]
    done = subprocess.run(
        [sys.executable, "-c", script, *options], capture_output=True, text=True, cwd=request.config.rootpath
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


def test_where_it_is_not_compiled_the_plain_one_is_used_and_that_is_told_once() -> None:
    script = (
        "import sys, warnings; sys.modules['waterclock.wheel._arrays'] = None\n"
        "with warnings.catch_warnings(record=True) as told:\n"
        "    warnings.simplefilter('always')\n"
        "    import waterclock.wheel; before = len(told)\n"
        "    from waterclock import ArrayWheel; from waterclock.wheel import ArrayWheel as Again\n"
        "print(ArrayWheel is Again, ArrayWheel.__module__, before, [one.category.__name__ for one in told])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "True waterclock.wheel.plain_arrays 0 ['ReferenceWheelWarning']\n", done.stderr


# Threads

MANY = 2_000_000


def many(wheel: Any) -> tuple[array[int], array[int]]:
    """Deadlines enough for a call that lasts, and their ids in `wheel`."""
    count = 50_000 if isinstance(wheel, plain_arrays.ArrayWheel) else MANY
    deadlines = array("q", [1, 70_000, 300, 9_000_000]) * (count // 4)
    return deadlines, array("q", wheel.schedule(deadlines).tobytes())


CALLS: dict[str, Callable[[Any, array[int], array[int]], object]] = {
    "schedule": lambda wheel, deadlines, ids: wheel.schedule(deadlines),
    "cancel": lambda wheel, deadlines, ids: wheel.cancel(ids),
    "advance": lambda wheel, deadlines, ids: wheel.advance(10**7),
    "to_bytes": lambda wheel, deadlines, ids: wheel.to_bytes(),
}


@both
@pytest.mark.parametrize("call", CALLS)
def test_while_one_thread_is_inside_another_runs_and_is_refused_at_the_door(make: Make, call: str) -> None:
    for _ in range(20):  # until the two meet
        wheel, refused = make(), ""
        deadlines, ids = many(wheel)
        thread = threading.Thread(target=CALLS[call], args=(wheel, deadlines, ids))
        thread.start()
        while thread.is_alive():
            try:
                wheel.schedule(row(5))
            except RuntimeError as error:
                refused = str(error)
        thread.join()
        wheel._check()
        if refused:
            assert "another thread is inside this ArrayWheel" in refused
            return
    raise AssertionError("the second thread was never refused")


@both
def test_a_refused_or_failed_call_leaves_the_door_open(wheel: Any) -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match="now"):
            wheel.advance(2**63)
        with pytest.raises(ValueError, match="deadlines"):
            schedule(wheel, 2**63 - 1)
        with pytest.raises(TypeError):
            wheel.cancel([1])
    assert len(schedule(wheel, 1)) == 1


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
ALTERED = {
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
@pytest.mark.parametrize("wrong", ALTERED)
def test_bytes_that_contradict_themselves_are_refused_though_their_checksum_is_right(make: Make, wrong: str) -> None:
    wheel = make()
    cancel(wheel, schedule(wheel, 5, 6, 7, 70_000)[2])
    wheel.advance(10, 0)
    blob, (place, number) = wheel.to_bytes(), ALTERED[wrong]
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
