"""Rules on Spark. Importing this imports PySpark: `pip install waterclock[spark]`."""

from waterclock.errors import EnvironmentMissing

try:
    from waterclock.spark.transform import transform_with
except ImportError as error:
    raise EnvironmentMissing(f"{error.name} is missing: pip install 'waterclock[spark]'") from error

__all__ = ["transform_with"]
