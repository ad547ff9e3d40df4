"""The purgatory: operations that wait for a key or a deadline, whichever comes first, and are over once.

delayed.py is the whole of it. Where there was a C compiler the same file is `_delayed` too, compiled with the
types of _delayed.pxd, and that one is taken.
"""

from waterclock.purgatory.statistics import PurgatoryStatistics

__all__ = ["COMPILED", "DelayedOperation", "Purgatory", "PurgatoryStatistics"]

try:
    from waterclock.purgatory._delayed import DelayedOperation, Purgatory

    COMPILED = True
except ImportError:
    from waterclock.purgatory.delayed import DelayedOperation, Purgatory

    COMPILED = False
