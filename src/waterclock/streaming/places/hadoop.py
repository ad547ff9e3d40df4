"""A place by its URI, reached through Hadoop's FileSystem in the Java that Spark runs on: what Spark reads, this reads.

Rule 1: it is there once a session is; before that, an error says to start one. Executors have no such Java at hand.
Rule 2: a folder is listed in one call, however many files it has: each call from Python to Java is a millisecond.
Rule 3: a file is replaced whole or not at all. A store of objects shows an object when its writer closes it, and what was
        given up is no object; elsewhere a file beside it is renamed into its place.
Rule 4: of two that make one file at once, one is refused: by a conditional put on s3a, by the rename elsewhere. (Not on
        file:, where Java looks first and renames then.)
Rule 5: what Java throws becomes Python's own error if there is one, and else says which place could not be reached.
"""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import uuid4

from waterclock.errors import EnvironmentMissing, PlaceLost

_OBJECTS = ("s3a", "s3", "gs")  # whose files are seen when they are closed, and whose rename is a copy
_ONLY_IF_NEW = "fs.option.create.conditional.overwrite"
_NOT_THERE = ("FileNotFoundException", "NoSuchFileException")
_THERE = ("FileAlreadyExistsException", "RemoteFileChangedException")
_FORBIDDEN = ("AccessControlException", "AccessDeniedException")
_WRITTEN = re.compile(r"; modification_time=(\d+)")
_systems: dict[tuple[int, str], Any] = {}  # (Java, scheme and authority) -> its FileSystem


@dataclass(frozen=True, slots=True)
class ListedFile:
    """What a folder lists: a name, whether it is a folder, and when it was written, in milliseconds since 1970."""

    name: str
    is_folder: bool
    written_ms: int


@dataclass(frozen=True)
class HadoopPath:
    """A place by its URI, with those of pathlib's names that are used of one.

    >>> place = HadoopPath("hdfs://namenode:8020/in/a.jsonl")
    >>> (place.name, place.stem, str(place.parent), str(place.parent / "b"))
    ('a.jsonl', 'a', 'hdfs://namenode:8020/in', 'hdfs://namenode:8020/in/b')
    """

    uri: str

    def __str__(self) -> str:
        return self.uri

    def __truediv__(self, name: str) -> HadoopPath:
        return HadoopPath(f"{self.uri.rstrip('/')}/{name}")

    @property
    def scheme(self) -> str:
        return self.uri.partition(":")[0].lower()

    @property
    def name(self) -> str:
        return self.uri.rpartition("/")[2]

    @property
    def stem(self) -> str:
        return self.name.rpartition(".")[0] or self.name

    @property
    def parent(self) -> HadoopPath:
        """The folder that it lies in; a root is its own."""
        above = self.uri.rpartition("/")[0]
        return self if above.endswith("/") or not above else HadoopPath(above)

    @property
    def parents(self) -> tuple[HadoopPath, ...]:
        """The folders around it, the nearest first."""
        above = self.parent
        return () if above == self else (above, *above.parents)

    # Looking ---------------------------------------------------------------------------------------------------

    def exists(self) -> bool:
        with self._errors():
            return bool(self._system.exists(self._java))

    def is_dir(self) -> bool:
        with suppress(FileNotFoundError), self._errors():
            return bool(self._system.getFileStatus(self._java).isDirectory())
        return False

    def is_file(self) -> bool:
        return self.exists() and not self.is_dir()

    def iterdir(self) -> Iterator[HadoopPath]:
        """FileNotFoundError if there is no folder."""
        return (self / entry.name for entry in self.entries())

    def entries(self) -> list[ListedFile]:
        """What the folder lists, by one call to its store; FileNotFoundError if there is none."""
        with self._errors():
            listed = _context()._jvm.org.apache.hadoop.util.functional.RemoteIterators.toList(
                self._system.listStatusIterator(self._java)
            )
            return _entries(str(listed.toString()), str(self._system.makeQualified(self._java).toString()).rstrip("/"))

    def written_ms(self) -> int:
        """When it was last written, in milliseconds since 1970 by its store's clock; s3a counts whole seconds."""
        with self._errors():
            return int(self._system.getFileStatus(self._java).getModificationTime())

    def read_bytes(self) -> bytes:
        """FileNotFoundError if it is not there."""
        with self._errors():
            stream = self._system.open(self._java)
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

    def read_text(self) -> str:
        return self.read_bytes().decode()

    # Changing --------------------------------------------------------------------------------------------------

    def make_folder(self) -> None:
        """Have it, and those above it; nothing on a store of objects, which has none."""
        with self._errors():
            self._system.mkdirs(self._java)

    def write_whole(self, data: bytes) -> None:
        """Replace the file by one with `data`, whole or not at all."""
        if self.scheme in _OBJECTS:
            self._put(data)
            return
        fresh = self.parent / f".{self.name}.new"
        fresh._put(data)
        fresh._rename(self, "OVERWRITE")

    def create_new(self, data: bytes) -> bool:
        """Make the file with `data`, whole, if nobody else did or does; whether it was this one who made it."""
        if self.scheme in _OBJECTS:
            with suppress(FileExistsError), self._errors():
                made = self._system.createFile(self._java).overwrite(False).opt(_ONLY_IF_NEW, True).recursive().build()
                self._close(made, data)
                return True
            return False
        fresh = self.parent / f".{self.name}.{uuid4().hex}.new"
        fresh._put(data)
        try:
            fresh._rename(self, "NONE")
        except FileExistsError:
            fresh.unlink()
            return False
        return True

    def unlink(self) -> None:
        """Remove the file; nothing if it is not there."""
        self.remove(within=False)

    def remove(self, within: bool = True) -> None:
        """Remove the file, or the folder with all that is in it; nothing if it is not there."""
        with self._errors():
            self._system.delete(self._java, within)

    def _put(self, data: bytes) -> None:
        with self._errors():
            self._close(self._system.create(self._java, True), data)

    @staticmethod
    def _close(stream: Any, data: bytes) -> None:
        try:
            stream.write(bytearray(data))
        except BaseException:
            with suppress(Exception):  # only a store of objects can; elsewhere nobody reads a file beside the right one
                stream.abort()
            with suppress(Exception):
                stream.close()
            raise
        stream.close()

    def _rename(self, to: HadoopPath, option: str) -> None:
        with to._errors():
            context, fs = _context(), _context()._jvm.org.apache.hadoop.fs
            options = context._gateway.new_array(fs.Options.Rename, 1)
            options[0] = getattr(fs.Options.Rename, option)
            files = fs.FileContext.getFileContext(self._system.getUri(), context._jsc.hadoopConfiguration())
            files.rename(self._java, to._java, options)

    # Java ------------------------------------------------------------------------------------------------------

    @cached_property
    def _java(self) -> Any:
        return _context()._jvm.org.apache.hadoop.fs.Path(self.uri)

    @property
    def _system(self) -> Any:
        context = _context()
        key = (id(context._gateway), self.parents[-1].uri if self.parents else self.uri)
        if key not in _systems:
            _systems[key] = self._java.getFileSystem(context._jsc.hadoopConfiguration())
        return _systems[key]

    @contextmanager
    def _errors(self) -> Iterator[None]:
        _context()  # py4j comes with PySpark
        from py4j.protocol import Py4JError, Py4JJavaError

        try:
            yield
        except Py4JJavaError as error:
            raise self._translated(error.java_exception) from error
        except Py4JError as error:
            raise PlaceLost(f"{self} cannot be reached: Spark's Java is gone ({error})") from error

    def _translated(self, thrown: Any) -> Exception:
        kind, said = str(thrown.getClass().getSimpleName()), str(thrown.getMessage()).partition("\n")[0]
        if kind in _NOT_THERE:
            return FileNotFoundError(errno.ENOENT, "it is not there", self.uri)
        if kind in _THERE or "PreconditionFailed" in said or "Status Code: 412" in said:
            return FileExistsError(errno.EEXIST, "it is there already", self.uri)
        if kind in _FORBIDDEN:
            return PermissionError(errno.EACCES, f"not allowed ({said})", self.uri)
        if kind == "UnsupportedFileSystemException" or "ClassNotFoundException" in said:
            return EnvironmentMissing(
                f'Spark has no file system for {self.scheme}://: give its jars under [spark.conf], as "spark.jars" or '
                f'"spark.jars.packages" (docs/operations.md says which); {said}'
            )
        return PlaceLost(f"{self} cannot be reached: {kind}: {said}. Nothing that was committed is lost")


def _context() -> Any:
    pyspark = sys.modules.get("pyspark")  # who has a session has imported it
    context = None if pyspark is None else pyspark.SparkContext._active_spark_context
    if context is None:
        raise EnvironmentMissing(
            "a place behind a URL is reached through Spark, and no session runs yet: start one first, with "
            "waterclock.spark.start_session()"
        )
    return context


def _entries(listed: str, folder: str) -> list[ListedFile]:
    """Of Java's text of a list of what is in `folder`. No name holds a slash, so where one begins is sure; and what follows
    it is the store's: it ends before the last mark of that.

    >>> found = _entries("[S{path=f:/a/x; isDirectory=true; modification_time=5; x=1}, S{path=f:/a/y, z; isDirectory=true; "
    ...     "isDirectory=false; length=3; modification_time=7}]", "f:/a")
    >>> [(each.name, each.is_folder, each.written_ms) for each in found]
    [('x', True, 5), ('y, z; isDirectory=true', False, 7)]
    """
    found: list[ListedFile] = []
    for text in listed.split(f"path={folder}/")[1:]:
        name, _, rest = text.rpartition("; isDirectory=")
        written = _WRITTEN.search(rest)
        assert written is not None  # every status has it
        found.append(ListedFile(name, rest.startswith("true"), int(written[1])))
    return found
