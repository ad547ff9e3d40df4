"""What a Python that Spark starts does first: it connects to Spark, and imports PySpark after that.

    python -P worker.py FOLDER MODULE [ARGUMENT]    the script that runtimes.py makes says so, in the place of `-m MODULE`

Spark gives a Python ten seconds to connect, in code and not in a setting, and PySpark's workers import all of PySpark
before they do: half a second of processor, which on a machine with thirty others at work takes longer than that. What
connects here takes a fiftieth of it, and nobody counts the seconds that come after.

Rule 1: this file runs by its path in any Python, and imports nothing of PySpark's or ours before it has connected.
Rule 2: PySpark's files are those that pip installed, whose bytecode lies beside them. Spark puts a zip of the same in
        front, of which each Python compiles anew what it imports: 0.4 s of that half second.
Rule 3: the folder in which a Python is started is not on its path: a random.py there is not Python's own. FOLDER, where
        modules of a user's own lie, comes last; empty if there is none.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from runpy import run_module

_NUMBER = struct.Struct("!i")


def main() -> None:
    folder, module, *arguments = sys.argv[1:]
    connection = _connected()
    # Put the path right. Rules 2 and 3.
    home = os.path.realpath(os.environ.get("SPARK_HOME", ""))
    if home in {os.path.join(os.path.realpath(path), "pyspark") for path in sys.path}:
        sys.path[:] = [path for path in sys.path if not os.path.realpath(path).startswith(home + os.sep)]
    if folder:
        sys.meta_path.append(Beside(folder))
    sys.argv = [module, *arguments]
    if connection is None:  # a daemon: it prints where Spark is to connect
        run_module(module, run_name="__main__", alter_sys=True)
        return
    with connection, connection.makefile("rwb", int(os.environ.get("SPARK_BUFFER_SIZE", "65536"))) as file:
        file.write(_NUMBER.pack(os.getpid()))
        file.flush()
        import_module(module).main(file, file)


def _connected() -> socket.socket | None:
    """The connection for which Spark waits; None if it waits for none."""
    path, port = (os.environ.get(f"PYTHON_WORKER_FACTORY_{name}") for name in ("SOCK_PATH", "PORT"))
    if path is not None:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(path)
        return connection
    if port is None:
        return None
    host = "::1" if os.environ.get("SPARK_PREFER_IPV6", "").lower() == "true" else "127.0.0.1"
    connection = socket.create_connection((host, int(port)))
    secret = os.environ["PYTHON_WORKER_FACTORY_SECRET"].encode()
    connection.sendall(_NUMBER.pack(len(secret)) + secret)
    with connection.makefile("rb", 0) as file:
        (length,) = _NUMBER.unpack(file.read(_NUMBER.size))
        if file.read(length) != b"ok":
            raise ConnectionRefusedError("Spark does not take the secret that it gave this Python")
    return connection


class Beside:
    """Finds modules in a folder, where it stands last on `sys.meta_path`: behind every path, and behind packages that are
    installed in a way of their own, as `pip install --editable` does it."""

    def __init__(self, folder: str) -> None:
        self._folders = [folder]

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, self._folders) if path is None else None


if __name__ == "__main__":
    main()
