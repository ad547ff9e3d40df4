"""An S3 server on this machine: versitygw over a folder, which Go builds; and the jars with which Spark reads s3a://.

Rule 1: the program lies in S3_BIN, or else in build/s3/bin; the jars in S3_LIB, or else in build/s3/lib. Who lacks them
        gets them once, with Go and with Maven (`python -m waterclock.bench.servers.s3`: minutes, and 750 MB).
Rule 2: jars are on the class path of the JVM from its start: as "spark.jars" Spark would copy 600 MB at each one.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from waterclock.bench.servers.server import Process, free_ports, listening

_BUILD = Path(__file__).parents[2] / "build" / "s3"
POM = Path(__file__).parent / "s3" / "pom.xml"
LIB = Path(os.environ.get("S3_LIB") or _BUILD / "lib")
BIN = Path(os.environ.get("S3_BIN") or _BUILD / "bin")
_PROGRAM = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
_KEY, _SECRET = "waterclock", "waterclock-secret"


def fetch() -> None:
    """Bring the program and the jars, once. RuntimeError where they cannot be had."""
    if not (BIN / "versitygw").exists():
        _need("go", "golang")
        environment = {**os.environ, "GOBIN": str(BIN)}
        subprocess.run(["go", "install", _PROGRAM], check=True, env=environment, stdout=sys.__stderr__)
    if not any(LIB.glob("hadoop-aws-*.jar")):
        _need("mvn", "maven")
        copy = ["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies", f"-DoutputDirectory={LIB}"]
        subprocess.run(copy, check=True, stdin=subprocess.DEVNULL, stdout=sys.__stderr__)


def is_here() -> bool:
    """Whether nothing of it has to be brought."""
    return (BIN / "versitygw").exists() and any(LIB.glob("hadoop-aws-*.jar"))


def _need(program: str, package: str) -> None:
    if not shutil.which(program):
        raise RuntimeError(f"an S3 server to try needs {program}: apt install {package}")


class S3:
    """A running server with one bucket whose objects lie in `folder`; `uri` is the bucket.

    Hadoop keeps a file system by the name of its bucket, for as long as Java lives: the next server has another name.
    """

    def __init__(self, folder: Path) -> None:
        fetch()
        (self._port,) = free_ports(1)
        bucket = f"waterclock-{self._port}"
        (folder / "data" / bucket).mkdir(parents=True)  # a bucket is a folder
        (folder / "meta").mkdir()
        self.uri = f"s3a://{bucket}"
        place = ["posix", "--sidecar", str(folder / "meta"), str(folder / "data")]
        keys = ["--access", _KEY, "--secret", _SECRET]
        command = [str(BIN / "versitygw"), "--port", f"127.0.0.1:{self._port}", *keys, *place]
        self._process = Process(command, folder / "server.log", lambda _: listening(self._port))

    @property
    def settings(self) -> dict[str, str]:
        """Spark's, by their names."""
        own = {
            "endpoint": f"http://127.0.0.1:{self._port}",
            "endpoint.region": "us-east-1",
            "path.style.access": "true",
            "connection.ssl.enabled": "false",
            "access.key": _KEY,
            "secret.key": _SECRET,
        }
        classes = {"spark.driver.extraClassPath": f"{LIB}/*"}
        return {**classes, **{f"spark.hadoop.fs.s3a.{name}": value for name, value in own.items()}}

    def stop(self) -> None:
        """SIGTERM, and wait."""
        self._process.end(signal.SIGTERM)


if __name__ == "__main__":
    fetch()
