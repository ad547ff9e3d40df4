"""Rules on Spark, and what is pending of delayed messages. Its names import PySpark on first use, from the extra `spark`;
`pending` needs the extra `relay` too.

Rule 1: importing this imports nothing from outside the standard library, so that the command's options cost nothing.
"""

from typing import TYPE_CHECKING, Any

from waterclock.errors import EnvironmentMissing, pip_install
from waterclock.lazily import first_use

if TYPE_CHECKING:
    from waterclock.spark.batch.steps import reshaped
    from waterclock.spark.delays import pending
    from waterclock.spark.packing.transform import transform_with
    from waterclock.spark.pipeline import Pipeline
    from waterclock.spark.rescaling.carry import rescale
    from waterclock.spark.session.session import start_session
    from waterclock.spark.streams import folder, topics
    from waterclock.spark.tables.sink import SparkTable
    from waterclock.spark.write_once import write_once

__all__ = [
    "Pipeline",
    "SparkTable",
    "folder",
    "pending",
    "rescale",
    "reshaped",
    "start_session",
    "topics",
    "transform_with",
    "write_once",
]

_HOME = {
    "Pipeline": "pipeline",
    "SparkTable": "tables.sink",
    "folder": "streams",
    "pending": "delays",
    "rescale": "rescaling.carry",
    "reshaped": "batch.steps",
    "start_session": "session.session",
    "topics": "streams",
    "transform_with": "packing.transform",
    "write_once": "write_once",
}
_found = first_use(__name__, {name: f"waterclock.spark.{home}" for name, home in _HOME.items()})


def __getattr__(name: str) -> Any:
    """EnvironmentMissing if a package of the extra is not there."""
    try:
        return _found(name)
    except ImportError as error:
        if error.name is None:
            raise
        raise EnvironmentMissing(f"{error.name} is missing: {pip_install('spark')}", door="spark") from error
