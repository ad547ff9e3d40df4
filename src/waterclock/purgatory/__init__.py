"""The purgatory: operations that wait for a key or a deadline, whichever comes first, and are over once.

delayed.py is the whole of it. Where there was a C compiler the same file is `_delayed` too, compiled with the
types of _delayed.pxd, and that one is taken.
"""

import copyreg
from typing import NoReturn

from waterclock.purgatory.statistics import PurgatoryStatistics

__all__ = ["COMPILED", "DelayedOperation", "Purgatory", "PurgatoryStatistics"]

try:
    from waterclock.purgatory._delayed import DelayedOperation, Purgatory

    COMPILED = True
except ImportError:
    from waterclock.purgatory.delayed import DelayedOperation, Purgatory

    COMPILED = False
    for _class in (DelayedOperation, Purgatory):  # a signature is for C; Python has its own
        _class.__doc__ = (_class.__doc__ or "").partition("\n--\n\n")[2]


def _not_copied(purgatory: Purgatory) -> NoReturn:
    raise TypeError("a Purgatory is neither copied nor pickled: an operation waits in one, and is over once")


copyreg.pickle(Purgatory, _not_copied)
