"""A batch is written beside Spark's next one: the sink's thread, and the mark in the checkpoint that it may be behind.

    1. batch N is taken, once; meanwhile batch N-1 may still be on its way into the sink
    2. N-1 is waited for; if it failed, N fails with its error, and nothing of N is written
    3. the first time in a run: the mark `waterclock.beside` is laid into the checkpoint
    4. N is given to the thread, which does steps 2 to 5 of sinks/base.py; Spark notes that N is done, plans N+1 and runs it
    5. when the run ends, or halts for another checkpoint (succession.py), the last one is waited for, and the mark goes

Rule 1: so the sink lacks one batch at most of those that Spark notes as done. What a kill leaves of that, the next start
        takes back (checkpoint/taken_back.py), which the mark tells it to.
Rule 2: one batch at a time is written, in their order, by one thread at a time.
Rule 3: the batch that closes everything is written before Spark notes it: none comes behind it that would tell of an error.
Rule 4: a mark stays if something failed, and is forced onto the disk before the first batch that needs it.
Rule 5: only a source of which nothing is removed by then is read twice: a source of Spark's own may give back what it has
        read once Spark notes a batch as done. Only where one system judges who owns the checkpoint: behind a URI a run that
        was taken over may wake up and note a batch as done. And only sinks that need nothing of Spark to write.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.checkpoint.taken_back import mark, unmark


class BesideWriter:
    """The thread of a run that writes a batch while Spark is at the next one. `begin` and `end` are one thread's at a
    time; any may wait."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._thread: threading.Thread | None = None
        self._is_marked = False
        self.failure: BaseException | None = None

    def begin(self, write: Callable[[], None]) -> None:
        """Run `write` in the thread, behind the one before; raises what that one did."""
        self.settle()
        if not self._is_marked:
            mark(self._checkpoint)
            self._is_marked = True
        thread = threading.Thread(target=self._run, args=(write,), name="waterclock-sink", daemon=True)
        thread.start()
        self._thread = thread  # which others wait for: one that has not begun cannot be joined

    def wait(self) -> None:
        """Until nothing is being written; whatever became of it."""
        if self._thread is not None:
            self._thread.join()

    def settle(self) -> None:
        """Wait; raises what the last one raised, and again each time it is asked."""
        self.wait()
        if self.failure is not None:
            raise self.failure

    def end(self) -> None:
        """Settle, when no batch begins any more: the sink has all that Spark notes as done."""
        self.settle()
        if self._is_marked:
            unmark(self._checkpoint)
            self._is_marked = False

    def _run(self, write: Callable[[], None]) -> None:
        try:
            write()
        except BaseException as error:
            self.failure = error
