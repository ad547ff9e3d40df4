"""One file of a server's folder is damaged, in one way, at a place that a seed draws.

Rule 1: a place is where something is written: of a file that was reserved in advance only what is before its last byte
        that is not zero counts.
Rule 2: what would change nothing is not tried.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

SECTOR: Final = 512
NEAR: Final = 100  # bytes: a place in every third flip or so is in the file's head, and in another one near its end
OLDEST, NEWEST, INDEX, BESIDE, SERVER = "oldest records", "newest records", "index", "beside the log", "server's files"
ROLES: Final = (OLDEST, NEWEST, INDEX, BESIDE, SERVER)
FLIP, SHORT, HALF, EMPTY, ZEROS, GONE = "a bit flipped", "end cut", "half cut", "all cut", "sector zeroed", "removed"
EVERY: Final = (FLIP, SHORT, HALF, EMPTY, ZEROS, GONE)
FEW: Final = (FLIP, HALF, GONE)  # of files that hold no records, where each start takes long


def chosen(folder: Path, roles: Mapping[str, str]) -> list[tuple[str, Path]]:
    """Role and file: the oldest and the newest with records, of each other kind the fullest one."""
    records, others = list[Path](), dict[str, list[Path]]()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        role = role_of(path.relative_to(folder), roles)
        if role == NEWEST:
            records.append(path)
        elif role:
            others.setdefault(f"{role}/{kind_of(path.relative_to(folder))}", []).append(path)
    records.sort(key=lambda path: (len(path.name), path.name))
    found = [(OLDEST, records[0]), (NEWEST, records[-1])]
    return found + [(kind.split("/")[0], max(paths, key=used)) for kind, paths in others.items()]


def role_of(path: Path, roles: Mapping[str, str]) -> str:
    """The first that fits; nothing for what is no data, as a lock."""
    return next((role for pattern, role in roles.items() if re.search(pattern, str(path))), "")


def kind_of(path: Path) -> str:
    """Its name and folder without numbers and ids: `plain-N/N.log`."""
    return re.sub(r"\d+", "N", re.sub(r"\.[0-9a-f]{16}\b", "", str(path)))


def used(path: Path) -> int:
    return len(path.read_bytes().rstrip(b"\0"))


def harm(path: Path, what: str, dice: random.Random) -> str:
    """What was done, to the byte; nothing where it would change nothing."""
    data = bytearray(path.read_bytes())
    before, end = bytes(data), used(path)
    if what == GONE:
        path.unlink()
        return f"{len(data)} bytes removed"
    if not end:
        return ""
    at = {SHORT: end - min(end, dice.randint(1, NEAR)), HALF: end // 2, EMPTY: 0}.get(what, end)
    del data[at:]
    if what == FLIP:
        data = bytearray(before)
        at = dice.choice(
            [dice.randrange(end), end - 1 - dice.randrange(min(end, NEAR)), dice.randrange(min(end, NEAR))]
        )
        data[at] ^= 1 << dice.randrange(8)
    if what == ZEROS:
        at = dice.randrange(0, end, SECTOR)
        data = bytearray(before)
        data[at : at + SECTOR] = bytes(len(data[at : at + SECTOR]))
    if data == before:
        return ""
    path.write_bytes(data)
    return f"byte {at} of {len(before)}"
