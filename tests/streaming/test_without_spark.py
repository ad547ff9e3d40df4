"""What a pipeline is made of without Spark can be imported where there is no PySpark."""

from __future__ import annotations

import subprocess
import sys

BLOCKED = """
import importlib, pkgutil, sys
sys.modules["pyspark"] = sys.modules["py4j"] = None
import waterclock.streaming
for module in pkgutil.walk_packages(waterclock.streaming.__path__, "waterclock.streaming."):
    importlib.import_module(module.name)
    print(module.name)
print([name for name in sys.modules if name.startswith("waterclock.spark")])
"""


def test_every_module_of_streaming_is_imported_with_pyspark_blocked() -> None:
    done = subprocess.run([sys.executable, "-c", BLOCKED], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    *modules, of_spark = done.stdout.splitlines()
    assert {"waterclock.streaming.state.bucket", "waterclock.streaming.toml.config"} < set(modules)
    assert of_spark == "[]"


def test_a_place_behind_a_uri_says_that_it_needs_a_session_where_there_is_no_pyspark() -> None:
    script = (
        "import sys; sys.modules['pyspark'] = sys.modules['py4j'] = None\n"
        "from waterclock.streaming.places.hadoop import HadoopPath\n"
        "from waterclock.errors import EnvironmentMissing\n"
        "try: HadoopPath('hdfs://host/in').exists()\nexcept EnvironmentMissing as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "is reached through Spark, and no session runs yet" in done.stdout
