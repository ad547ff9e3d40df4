"""The names of what lies in a checkpoint folder, Spark's and ours: what has another name there is somebody else's.

Rule 1: who removes a checkpoint, or what was begun of one, removes what has one of these names, and nothing else.
"""

from __future__ import annotations

from waterclock.streaming.places.place import Place, names_in

_SPARK = ("metadata", "offsets", "commits", "sources", "state", "spark.log")
_NOTES = (
    "starting.json",
    "closed-at.json",
    "source-closed",
    "inferred.json",
    "carried.json",
    "carried-over.json",
    "heartbeats",
)
_OURS = "waterclock."  # what begins with this, too


def is_of_a_checkpoint(name: str) -> bool:
    """Whether a name is one of these, or that of a file on its way to one, or of Java's sum of one.

    >>> [is_of_a_checkpoint(name) for name in ("offsets", ".metadata.crc", "waterclock.json", "notes.txt")]
    [True, True, True, False]
    """
    plain = name.lstrip(".")
    if plain.startswith(_OURS) or name in (*_SPARK, *_NOTES):
        return True
    return plain != name and any(plain.startswith(f"{each}.") for each in (*_SPARK, *_NOTES))


def others_in(folder: Place) -> list[str]:
    """The names in a folder that are none of a checkpoint's."""
    return sorted(name for name in names_in(folder) if not is_of_a_checkpoint(name))
