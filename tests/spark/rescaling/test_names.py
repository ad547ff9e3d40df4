"""The function has the name that the document imports, whatever was imported before."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import waterclock.spark.rescaling.carry, waterclock.pipelines.state
from waterclock import spark
from waterclock.spark import *
import types
print([name for name in spark.__all__ if isinstance(getattr(spark, name), types.ModuleType)], callable(rescale))
"""


def test_no_public_name_is_hidden_by_a_folder_of_that_name() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout == "[] True\n"
