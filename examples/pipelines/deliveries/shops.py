"""What stands between the CSV and the rules: each scan learns in which city its shop is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def with_city(scans: DataFrame) -> DataFrame:
    """`scans` joined with shops.csv, which lies beside this file; a shop that is not in there has no city."""
    table = str(Path(__file__).with_name("shops.csv"))
    shops = scans.sparkSession.read.csv(table, header=True, schema="shop string, city string")
    return scans.join(F.broadcast(shops), "shop", "left")
