"""What Spark's Java threw while it worked on a table, in the words of a line."""

from __future__ import annotations

from typing import Any

import pyspark

# a jar that was built for another Spark: a method or class is not there, or is of another kind
_LINKAGE = (
    "NoSuchMethodError",
    "NoSuchFieldError",
    "NoClassDefFoundError",
    "IncompatibleClassChangeError",
    "AbstractMethodError",
    "ClassNotFoundException",
    "VerifyError",
)
_COLLISIONS = ("Concurrent", "ValidationException", "CommitFailedException")
_MANY = 20  # causes that are followed


def explained(error: Exception) -> str:
    """What is wrong with the tables of a session, and where to look."""
    said = words(error)
    if any(name in said for name in _LINKAGE):
        return (
            f"{said}. The library of Delta Lake or Iceberg is not in Spark's session, or was built for another Spark than "
            f"{pyspark.__version__}: docs/operations.md tells which were tried together"
        )
    return f"{said}. Look at the catalogs and jars of Spark's session ([spark.conf]), and at the table's name"


def words(error: Exception) -> str:
    """The last cause, in a line."""
    cause = _causes(error)[-1]
    return (cause.strip().partition("\n")[0] or type(error).__name__).rstrip(". ")


def is_collision(error: Exception) -> bool:
    """Whether somebody else's commit came in between."""
    return any(name in cause.partition(":")[0] for cause in _causes(error) for name in _COLLISIONS)


def _causes(error: Exception) -> list[str]:
    """What was thrown, and its causes: each as Java tells it, with its class in front."""
    thrown: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    told: list[str] = []
    try:
        while thrown is not None and len(told) < _MANY:
            told.append(str(thrown.toString()))
            thrown = thrown.getCause()
    except Exception:  # Java itself is gone
        thrown = None
    return told or [str(error)]
