"""Whether what executors keep of a batch's state lies in the checkpoint that the driver has.

    state/0/3/8.changelog    Spark's: what batch 7 changed in the state of partition 3

On a cluster each executor writes its partitions' part under the checkpoint's path on its own machine. Where that is not one
folder for all, the batches go on as long as the executors live, and the state of none of them outlives them.

Rule 1: a folder that comes over a network may show a new file a while later: it is waited for.
"""

from __future__ import annotations

import json

from waterclock.clock import Clock
from waterclock.errors import EnvironmentMissing
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.streaming.places.place import is_remote, names_in

_PATIENCE_S, _LOOK_EVERY_S = 60.0, 0.2  # NFS keeps what a folder listed for up to a minute


def refuse_unseen_state(checkpoint: Checkpoint, batch_id: int, master: str, clock: Clock) -> None:
    """Raise EnvironmentMissing where the state that batch `batch_id` stored is not there, or not that of all partitions.

    Nothing where Spark's `master` is this machine alone, or the checkpoint lies behind a URI: all write to one place then.
    """
    if master.startswith("local") or is_remote(checkpoint.path):
        return
    until = clock.monotonic_s() + _PATIENCE_S
    while missing := _missing(checkpoint, batch_id):
        if clock.monotonic_s() >= until:
            raise EnvironmentMissing(
                f"executors stored the state of batch {batch_id}, and in the checkpoint {checkpoint.path}, as the driver "
                f"sees it, that of {len(missing)} of {_partitions(checkpoint, batch_id)} partitions is not there: mount "
                "the folder there, on every machine of the cluster, under the same path, or give a URI that all reach. "
                "Nothing of the batch was written"
            )
        clock.sleep_s(_LOOK_EVERY_S)


def _missing(checkpoint: Checkpoint, batch_id: int) -> list[int]:
    """The partitions of which no file of the batch's version is there."""
    state, version = checkpoint.path / "state" / "0", str(batch_id + 1)
    return [
        partition
        for partition in range(_partitions(checkpoint, batch_id))
        if not any(_version_of(name) == version for name in names_in(state / str(partition)))
    ]


def _version_of(name: str) -> str:
    """The version that a file of state is of: 8.changelog, 8.zip, 8_UNIQUE.zip.

    >>> [_version_of(name) for name in ("8.changelog", "8_1b2c.zip", "SSTs", ".8.tmp")]
    ['8', '8', '', '']
    """
    number = name.partition(".")[0].partition("_")[0]
    return number if number.isdecimal() else ""


def _partitions(checkpoint: Checkpoint, batch_id: int) -> int:
    """In how many partitions Spark keeps the state; 0 where its notes do not tell."""
    lines = (checkpoint.offsets(batch_id) or "").splitlines()
    settings = json.loads(lines[1]).get("conf", {}) if len(lines) > 1 else {}
    return int(settings.get("spark.sql.shuffle.partitions", 0))
