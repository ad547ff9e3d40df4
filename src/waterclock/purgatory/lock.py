"""The locks of a purgatory: one that is a lock, and one for each operation, for which no thread ever waits.

The lock of the watch lists guards every step that changes something: each is a few dozen instructions and calls nothing
of the user's. One lock for all keys, for an operation is in several lists and its state changes with them; under the
interpreter's lock no second one would let anything more happen at once. It is re-entrant, because the garbage collector
may run in the middle of a step, and in it a `__del__` of the user that ends an operation.

An operation's own lock is held while its `try_complete` runs, which may take long and take other locks. It is a field,
the thread that asks now, and changes under the lock of the watch lists. Another one does not wait: it leaves word and goes
on. So does a question that triggers its own key, once. That loses no wake-up, as threads A and B show
(test_a_trigger_during_a_question_is_answered_by_the_thread_that_asks plays it):

    A  check_and_complete("k") takes the operation's lock and asks: not yet.
    B  makes the condition true, calls check_and_complete("k"), and finds the lock with A.
       It leaves word, "again", and returns 0.
    A  is done asking and lets go of the lock. It finds "again", and asks once more.

Leaving word and letting go are both steps under the one lock, so one comes first. B first: A finds the word. A first: B
finds the operation's lock free, and asks itself. And as B does not wait, two threads that trigger each other's operations
cannot lock each other up; nor is a timeout or a `force_complete()` held up by a question.

The first watching goes like that too (test_what_becomes_true_during_the_first_question_is_seen_by_the_second plays it):

    A  try_complete_else_watch asks: not yet. The operation is in no list so far.
    B  makes the condition true and calls check_and_complete("k"), which finds no operation.
    A  puts the operation into its lists and asks again: yes.

Had B come after the lists, it would have found the operation, and left word.
"""

from __future__ import annotations

from _thread import RLock, get_ident  # threading.RLock is a function, which nothing can be derived from
from typing import TYPE_CHECKING

__all__ = ["Lock", "PlainLock"]


class PlainLock(RLock):  # type: ignore[misc]  # the stubs call it final, and it is not
    """Python's own lock, which knows the thread that asks.

    >>> lock = PlainLock()
    >>> with lock, lock:
    ...     lock.me() > 0
    True
    """

    me = staticmethod(get_ident)


if TYPE_CHECKING:
    from waterclock.purgatory._lock import Lock
else:
    try:
        from waterclock.purgatory._lock import Lock
    except ImportError:
        Lock = PlainLock
