"""What goes into an array wheel and comes out (semantics.md, section 2, promise 1); threads at its door (promise 5)."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.test_import import BLOCK
from tests.wheel.array_wheels import ARRAY_WHEELS, Make, advance, row, schedule
from waterclock.wheel import plain_arrays

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
