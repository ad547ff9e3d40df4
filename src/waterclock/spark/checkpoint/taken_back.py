"""A batch that Spark notes as done and a kill kept from the sink is taken back, so that Spark runs it again.

Where batches are written beside Spark's next one (batch/beside.py), a kill may leave the sink without the last batch that
is done. Let that be batch N. Spark has state of version N+1 then, may have planned N+1, and may have stored version N+2.

    1. state of version N+1 and behind goes: N+1 is planned anew, and may read other rows then; and so may N, of which a
       file is gone by then: Spark would load a snapshot of the first time below what was written the second
    2. offsets/N+1 goes
    3. commits/N goes: Spark runs batch N again, from offsets/N and state of version N
    4. the mark goes

Rule 1: each step is on the disk before the next one begins. Killed between two, the next start does all of them again.
Rule 2: nobody has anything of N+1: a sink is given N+1 behind N. Of several sinks the one that lacks the most says what
        N is; the others pass over what they have.
Rule 3: without the mark nothing is taken back: a sink that lacks a batch was lost or restored, and is refused
        (sinks/base.py). So is one that lacks more than the last one.
Rule 4: the list of files of N+1 (sources/0) is that of no batch now, and is set aside (reads.py).
"""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

from waterclock.disk import flush_folder
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.checkpoint.state_files import version_of
from waterclock.streaming.checkpoint import write
from waterclock.streaming.places.place import is_remote, names_in, remove

log = logging.getLogger(__name__)
BESIDE = "waterclock.beside"


def mark(checkpoint: Checkpoint) -> None:
    """Write down that the sink may lack the last batch that is done."""
    write(checkpoint.path / BESIDE, "")


def unmark(checkpoint: Checkpoint) -> None:
    """The sink has them all."""
    if (checkpoint.path / BESIDE).exists():
        remove(checkpoint.path / BESIDE)


def take_back(checkpoint: Checkpoint, held: int) -> None:
    """Have Spark run the batch behind `held`, the last one that every sink has, again if it is done and a mark says why."""
    if is_remote(checkpoint.path) or not (checkpoint.path / BESIDE).exists():
        return
    lacking, folder = held + 1, checkpoint.local
    if lacking == checkpoint.last_done() and checkpoint.offsets(lacking) is not None:
        for store in folder.glob("state/*/*"):
            _remove(store, lacking + 1)  # 1
        _remove(folder / "offsets", lacking + 1)  # 2
        _remove(folder / "commits", lacking)  # 3
        log.warning("a run was killed before batch %d, which Spark has done, was in the sink: it is run again", lacking)
    done = checkpoint.last_done()
    if done is None or done <= held:  # otherwise the sink is refused, and may be mended
        unmark(checkpoint)  # 4


def _remove(folder: Path, first: int) -> None:
    """What is numbered, from `first` on, and Java's sum of it."""
    for name in names_in(folder):
        number = version_of(name)
        if number and int(number) >= first:
            for spent in (f".{name}.crc", name):
                with suppress(FileNotFoundError):
                    remove(folder / spent)
    flush_folder(folder)
