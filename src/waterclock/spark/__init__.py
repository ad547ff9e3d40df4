"""Rules on Spark. `transform_with` imports PySpark on first use: `pip install waterclock[spark]`.

Rule 1: importing this imports nothing from outside the standard library, so that the command's options cost nothing.
"""

from typing import TYPE_CHECKING, Any

from waterclock.errors import EnvironmentMissing

if TYPE_CHECKING:
    from waterclock.spark.transform import transform_with

__all__ = ["transform_with"]


def __getattr__(name: str) -> Any:
    """EnvironmentMissing where a package of the extra is not there."""
    if name not in __all__:
        raise AttributeError(f"module 'waterclock.spark' has no attribute {name!r}")
    try:
        from waterclock.spark.transform import transform_with
    except ImportError as error:
        raise EnvironmentMissing(f"{error.name} is missing: pip install 'waterclock[spark]'") from error
    return transform_with
