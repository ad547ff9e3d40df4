"""The folder of one partition's files: for one process, and never removed if its files are not believed.

    FOLDER                          the files that a relay works with
    FOLDER/manifest                 which of them count, and up to where: a sealed file (disk.py), anew at each checkpoint
    FOLDER.aside.MOMENT.few-words   what was not believed, as it was found; `why` in it has the sentence
    FOLDER.spare.MOMENT.few-words   the same, if the log held all of its messages at that moment

Rule 1: the whole folder gets another name, in one step: a crash leaves the one or the other. Nothing reads it there but
        `waterclock relay files` (`Salvage`).
Rule 2: the last spare one is kept. Others stay until somebody removes them. Of one without a message the files are removed.
Rule 3: the manifest says whose the folder is. Files of another group, topic or partition are not read.

`Salvage` reads the messages of a folder that no relay reads: one that was set aside, or that of a topic that is no more.

Rule 4: it writes nothing and locks nothing, and whose the folder was does not matter.
Rule 5: if manifest and ledger can be read, the messages are those that were pending by them, and those that were filed
        behind the last checkpoint; else all that the index files name, delivered ones too: `is_known` says which.
Rule 6: a message is given if its checksum is right; `damaged` counts the others.
"""

from __future__ import annotations

import json
import logging
import re
import zlib
from collections.abc import Collection, Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from waterclock.disk import (
    FolderLock,
    WithoutLocks,
    flush_folder,
    free_name,
    make_folder,
    sealed,
    set_aside,
    unsealed,
    write_whole,
)
from waterclock.errors import UsageError
from waterclock.outside import open_file, os, shutil
from waterclock.relay.store.files import HEADER, NO_FILE_LEFT, OURS, DiskRefused, StoreDamaged, StoreFiles
from waterclock.relay.store.ledger import OriginLedger
from waterclock.relay.store.origins import FIRST_SLOT, Origins, State
from waterclock.relay.store.rows import MOST_TARGETS, ROW, Array, Payload, unpack
from waterclock.wording import counted

MANIFEST: Final = "manifest"
FORMAT: Final = 2  # of the manifest
WHY: Final = "why"
_MOST_WORDS: Final = 60
_SLICE: Final = 8_192  # rows
log = logging.getLogger("waterclock.relay")


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose files these are: an input partition as one group reads it. `topic_id` is Kafka's: a topic of the same name
    that was made again has another."""

    group: str
    topic_id: str
    partition: int

    def folder_name(self) -> str:
        """A name for its folder: readable, and another one for each identity.

        >>> Identity("relay", "J8iNnLwT", 2).folder_name()
        'relay-J8iNnLwT-2-4c3fc5bb'
        """
        words = [re.sub(r"[^\w-]", "_", word, flags=re.ASCII)[:60] for word in (self.group, self.topic_id)]
        digest = blake2b(json.dumps([self.group, self.topic_id, self.partition]).encode(), digest_size=4)
        return f"{words[0]}-{words[1]}-{self.partition}-{digest.hexdigest()}"


def manifest_bytes(identity: Identity, content: dict[str, Any]) -> bytes:
    """The bytes of a manifest: they are made before the files are flushed, and written after."""
    return sealed({"format": FORMAT, "identity": asdict(identity), **content})


class Folder:
    """One at `path`, made and locked. UsageError if another process has it; OSError if the disk refuses."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = FolderLock(path, "lock", WithoutLocks.REFUSE)
        self._take()

    def _take(self) -> None:
        make_folder(self.path)
        try:
            self._lock.take()
        except BlockingIOError:
            raise UsageError(
                f"{self.path} is in use by another process: stop that relay, or give this one a folder of its own"
            ) from None

    def release(self) -> None:
        """Give it back."""
        self._lock.release()

    def write_manifest(self, data: bytes) -> None:
        """Replace the manifest, durably. OSError if the disk refuses; then the old one holds."""
        try:
            write_whole(self.path / MANIFEST, data, 0o600)
        except OSError as error:
            raise DiskRefused(error, self.path / MANIFEST, len(data)) from None

    def read_manifest(self, identity: Identity) -> dict[str, Any] | None:
        """What the manifest says; None if there is none. `StoreDamaged` if it is not whole, or not of this identity;
        OSError if no file is left to this process."""
        try:
            data = _whole(self.path / MANIFEST)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in NO_FILE_LEFT:
                raise
            raise StoreDamaged(f"the manifest cannot be read: {error.strerror}") from None
        try:
            content: dict[str, Any] = unsealed(data)
        except ValueError:
            raise StoreDamaged("the manifest is damaged: its checksum is wrong") from None
        if content["format"] != FORMAT:
            raise StoreDamaged(f"the files are of format {content['format']}, and this version reads format {FORMAT}")
        if content["identity"] != asdict(identity):
            raise StoreDamaged(f"the files are those of {content['identity']}, not of {asdict(identity)}")
        return content

    def set_aside(self, why: str, wall_ms: int, pending: int | None, is_spare: bool) -> None:
        """Begin with an empty folder. `pending`: how many messages the files hold, if that can be known. OSError.

        1. write down why    2. rename the folder    3. make another one    4. remove the spare one of before
        """
        count = rows_in(self.path) if pending is None else pending
        if not count:
            log.warning("%s: cleared, to be filed anew from the log: %s. No message was in it", self.path, why)
            self.clear()
            return
        with suppress(OSError):  # the name says it too
            write_whole(self.path / WHY, f"{why}\n".encode())  # 1
        kind = "spare" if is_spare else "aside"
        before = self._spare_ones() if is_spare else []
        place = set_aside(self.path, self.path.with_name(f"{self.path.name}.{kind}.{_words(why, wall_ms)}"))  # 2
        self._take()  # 3
        log.warning(
            "%s: %s. It is set aside, with %s%s%s, and filed anew from the log. `waterclock relay files %s` "
            "prints them; rm -r that folder once nobody needs it",
            self.path,
            why,
            "up to " if pending is None else "",
            counted(count, "message"),
            " that the log has too" if is_spare else ": what of these the log has no more is not delivered",
            place,
        )
        for each in before:
            shutil.rmtree(each, ignore_errors=True)  # 4

    def copy_aside(self, why: str, wall_ms: int) -> None:
        """Keep a copy of it as it is. OSError."""
        place = free_name(self.path.with_name(f"{self.path.name}.aside.{_words(why, wall_ms)}"))
        shutil.copytree(self.path, place)
        log.warning("%s: %s: what was filed behind that is kept, in %s. `waterclock relay files` prints it; rm -r that "
                    "folder once nobody needs it", self.path, why, place)  # fmt: skip

    def clear(self) -> None:
        """Remove our files from it, the manifest first: a crash leaves files that nobody believes. OSError."""
        with suppress(FileNotFoundError):
            os.unlink(self.path / MANIFEST)
        flush_folder(self.path)
        for name in [name for name in os.listdir(self.path) if OURS.fullmatch(name)]:
            os.unlink(self.path / name)

    def _spare_ones(self) -> list[Path]:
        above, begins = self.path.parent, f"{self.path.name}.spare."
        return [above / name for name in sorted(os.listdir(above)) if name.startswith(begins)]


def _whole(path: Path) -> bytes:
    with open_file(path, "rb") as file:
        data: bytes = file.read()
    return data


def rows_in(folder: Path) -> int:
    """How many messages the index files of a folder name, whether delivered or not."""
    sizes = [os.stat(path).st_size for path in _indexes(folder)]
    return sum(max(0, size - HEADER) // ROW.itemsize for size in sizes)


def _indexes(folder: Path) -> list[Path]:
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return [folder / name for name in names if name.endswith(".index")]


def say_unread(folder: Path, read: Collection[str]) -> None:
    """Name the folders in `folder` that hold messages, and that nobody reads: those named `read` are."""
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    for path in (folder / name for name in names if name not in read):
        if os.path.isdir(path) and (count := rows_in(path)):
            log.warning(
                "%s is not read by this relay: it is of another topic or group, or was set aside. It holds up to %d "
                "messages. `waterclock relay files` prints them; rm -r that folder once nobody needs it", path, count,
            )  # fmt: skip


def _words(why: str, wall_ms: int) -> str:
    """
    >>> _words("the manifest is damaged: its checksum is wrong", 1_780_315_200_000)
    '20260601T120000Z.the-manifest-is-damaged-its-checksum-is-wrong'
    """
    moment = datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
    return f"{moment}.{re.sub(r'[^a-z0-9]+', '-', why.lower(), flags=re.ASCII)[:_MOST_WORDS].strip('-')}"


class Leftover(NamedTuple):
    """A message: its origin, when it is due (ms since the epoch), the topic (None: not known), and what is handed on."""

    origin: int
    due_ms: int
    topic: str | None
    payload: Payload


class Salvage:
    """Of the folder at a path. UsageError if there is none, or it holds no files of a relay's."""

    def __init__(self, folder: Path) -> None:
        self._indexes = _indexes(folder)
        if not self._indexes:
            raise UsageError(f"{folder} is no folder of a relay's partition with messages in it: no *.index is there.")
        self.damaged = 0
        self._targets, self._anew = list[str](), set[int]()
        self._filed_to = 0
        self._origins: Origins | None = None
        try:
            stored: dict[str, Any] = json.loads(_whole(folder / MANIFEST).partition(b"\n")[0])
            self._targets, self._anew = stored["targets"], set(stored.get("anew", ()))
            self._filed_to = stored["data_position"]
            with closing(StoreFiles(folder)) as files:
                ledger = OriginLedger(files, lambda: 0)
                ledger.restore(stored["ledger"])
            self._origins = ledger.origins
        except (StoreDamaged, OSError, ValueError, KeyError):
            pass  # rule 5

    @property
    def is_known(self) -> bool:
        """Whether it is known what was pending."""
        return self._origins is not None

    def messages(self) -> Iterator[Leftover]:
        """Each message once, in the order of the files, which is about that of due times."""
        seen = set[int]()
        for path in self._indexes:
            for rows in self._rows(path):
                for row in rows:
                    if (origin := int(row["origin"])) not in seen and (saved := self._saved(path, row)) is not None:
                        seen.add(origin)
                        yield saved

    def _rows(self, path: Path) -> Iterator[Array]:
        with open_file(path, "rb") as file:
            file.seek(HEADER)
            while data := file.read(_SLICE * ROW.itemsize):
                rows = np.frombuffer(data[: len(data) // ROW.itemsize * ROW.itemsize], ROW)
                if self._origins is not None:  # rule 5
                    values = self._origins.values(rows["origin"])
                    is_behind = (values == State.UNKNOWN) & (rows["origin"] >= self._filed_to)
                    rows = rows[(values >= FIRST_SLOT) | is_behind]
                yield rows

    def _saved(self, path: Path, row: Any) -> Leftover | None:
        blob = b""
        with suppress(OSError), open_file(path.with_suffix(".data"), "rb") as file:
            file.seek(int(row["pos"]))
            blob = file.read(int(row["length"]))
        if zlib.crc32(blob) != row["crc"] or not blob:
            self.damaged += 1
            return None
        number, origin = int(row["target"]), int(row["origin"])
        # behind the checkpoint a number may have been given anew
        is_behind = origin >= self._filed_to and len(self._targets) == MOST_TARGETS
        is_sure = number < len(self._targets) and not is_behind and (self.is_known or number not in self._anew)
        topic = self._targets[number] if is_sure else None
        return Leftover(origin, int(row["due"]), topic, unpack(blob))
