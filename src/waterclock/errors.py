"""Every error of waterclock, by whose doing.

    WaterclockError
    ├── UsageError          you: a wrong pipeline file, option or rule; the message names the remedy
    │   ├── StateMismatch   you: two things that belong together no longer do (sink and checkpoint)
    │   ├── Unreadable      you: a source of changes writes what cannot be passed on exactly
    │   ├── TimerClosed     you: a timer was added after `close()`
    │   └── PurgatoryClosed you: an operation was handed to a purgatory after `close()`
    ├── TimerFull           your load: as many timers wait as `max_pending` allows
    ├── ConnectionLost      the other side: a server went away in the middle; the same command goes on from there
    │   ├── PlaceLost       the store of a checkpoint or of files: it, or the way to it, went away
    │   └── SinkLost        the sink's server: it, or the way to it, went away before a batch was committed
    │       └── CommitUnknown   the same while a commit was on its way: it may have got through
    ├── EnvironmentMissing  your machine: Java, a package or a server is not there
    └── WrongAnswer         a contender of a benchmark: its answers are wrong, so its speed says nothing

A wrong argument of a function raises Python's own ValueError or TypeError at the call, naming the argument.
What to do about what is missing, or a name that is unknown, is worded here too, once: `pip_install`, `see_doctor`,
`meant`. What somebody else says comes into a sentence of ours by `unstopped`: else two full stops stand behind it.
"""

import re
from collections.abc import Iterable
from contextlib import suppress


class WaterclockError(Exception):
    """The root: catch this to catch whatever waterclock raises on purpose."""


class UsageError(WaterclockError):
    """What was asked for cannot be done as it was asked; the message says what to change."""


class StateMismatch(UsageError):
    """Stored state does not belong to what is being started; going on would lose or double results."""


class Unreadable(UsageError):
    """A source of changes writes what cannot be read exactly; the message names the table or setting, and the remedy."""


class TimerClosed(UsageError):
    """The driver was closed: it takes no timer any more, and what waited for it will not come."""


class PurgatoryClosed(UsageError):
    """The purgatory was closed: it takes no operation any more, and what waited there was ended as cancelled."""


class TimerFull(WaterclockError):
    """As many timers wait as `max_pending` allows: come back later, allow more, or choose another `when_full`."""


class ConnectionLost(WaterclockError):
    """A server went away in the middle of its work; nothing that was committed is lost."""


class SinkLost(ConnectionLost):
    """The connection to a sink went away: nothing of the batch stays, and it can be applied again."""


class PlaceLost(ConnectionLost):
    """The store of a checkpoint or of files could not be reached; nothing that was committed is lost."""


class CommitUnknown(SinkLost):
    """The connection went away before a commit was answered: only the sink, asked anew, knows whether it got through."""


class EnvironmentMissing(WaterclockError):
    """Something outside the package is missing; the message says how to get it.

    Where it is of this machine, `door` is what `waterclock doctor` should look at: the last line says so, as a note.

    >>> EnvironmentMissing("there is no Java", door="spark").__notes__
    ['to see what else is missing here: waterclock doctor spark']
    """

    def __init__(self, message: str, door: str = "") -> None:
        super().__init__(message)
        if door:
            self.add_note(see_doctor(door))


class WrongAnswer(WaterclockError):
    """A benchmark's contender answered wrongly; the message names it and what was expected."""


# package -> the extra that brings it; any other is of the extra `spark`
_EXTRAS = {
    "matplotlib": "demo",
    "confluent_kafka": "kafka",
    "pymysql": "mysql",  # and of cdc, as the command says
    "pymysqlreplication": "cdc",
    "kio": "broker",
    "crc32c": "broker",
    "cramjam": "broker",
    "duckdb": "duckdb",
    "psycopg": "postgres",
    "pgpq": "postgres",
    "deltalake": "delta",
    "pyiceberg": "iceberg",
    "aiokafka": "simulation",
    "greenlet": "simulation",
    "textual": "top",
}


def extra_of(package: str) -> str:
    """The extra that brings a package.

    >>> extra_of("deltalake"), extra_of("pyspark")
    ('delta', 'spark')
    """
    return _EXTRAS.get(package, "spark")


def pip_install(*extras: str) -> str:
    """The command that brings what these extras need, for the message of an error.

    It names the packages and not waterclock: so it is right however waterclock was installed, and no index need have it.

    >>> pip_install("kafka")
    "pip install 'confluent-kafka>=2.6'"
    """
    import shlex  # imports at the top would be paid for by every start
    from importlib.metadata import PackageNotFoundError, requires

    with suppress(PackageNotFoundError):
        wanted = [re.fullmatch(r"(.+?) *; *extra == .(\w+).", line) for line in requires("waterclock") or ()]
        if packages := dict.fromkeys(found[1] for found in wanted if found is not None and found[2] in extras):
            return shlex.join(["pip", "install", *packages])
    # its folder alone is on the path, or is newer than what was installed
    return f"pip install '.[{','.join(extras)}]' in the folder of waterclock's pyproject.toml"


def see_doctor(door: str) -> str:
    """The last line of an error about what is missing on this machine."""
    return f"to see what else is missing here: waterclock doctor {door}"


def unstopped(said: object) -> str:
    """An error, or what a server says, for a sentence of ours: one line, without a full stop. An error without words says
    what it is.

    >>> unstopped(OSError("The binlog  was purged.")), unstopped(TimeoutError())
    ('The binlog was purged', 'TimeoutError')
    """
    words = " ".join(str(said).split()).rstrip(". ")
    return words or type(said).__name__ if isinstance(said, BaseException) else words


def meant(name: str, known: Iterable[str], others: str = "") -> str:
    """Behind a name that is refused: the known one that is like it, else `others`, else all that are known.

    >>> meant("num.partition", ["num.partitions", "log.dirs"]), meant("x", ["b", "a"])
    ("did you mean 'num.partitions'?", 'known are a, b')
    """
    import difflib

    known = sorted(known)
    near = difflib.get_close_matches(name, known, 1)
    return f"did you mean {near[0]!r}?" if near else others or f"known are {', '.join(known)}"
