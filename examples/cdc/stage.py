"""Everything that runs: databases, a broker, the capture, the pipeline. How far each is; who is killed; the end.

    the shop -> MariaDB -> binlog -> waterclock cdc -> broker -> waterclock run -> PostgreSQL, or another one

Rule 1: the broker, the capture and the pipeline are the commands that a user would type, each a process of its own.
Rule 2: a question to one that has just been killed is asked again later: nothing here waits for an answer.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition

from waterclock.cdc.position import Position
from waterclock.cdc.stored import last_position
from waterclock.clock import Clock
from waterclock.errors import ConnectionLost, EnvironmentMissing
from waterclock.examples.ends import undisturbed
from waterclock.examples.processes import Process

from .servers import MariaDB, Postgres, free_port, programs
from .shop import DATABASE
from .target import DeltaTarget, DuckDBTarget, PostgresTarget, SQLiteTarget, Target

TOPIC, PARTITIONS = "shop", 4
_ANSWER_S = 2.0


class Stage:
    """Made in `folder`, which is empty but for what is put there; `close` ends and removes what is not for people."""

    def __init__(self, folder: Path, clock: Clock, to: str = "postgres") -> None:
        found = programs(of=("MariaDB", *(["PostgreSQL"] if to == "postgres" else [])))
        self._folder, self._clock = folder, clock
        self._own = Path(tempfile.mkdtemp(prefix="waterclock-", dir="/tmp"))
        self._own.chmod(0o755)
        self._consumer: Consumer | None = None
        self.processes: list[Process] = []
        try:
            self.mariadb = MariaDB(self._own / "mariadb", folder / "mariadb.log", found, clock)
            self.target = self._target(to, found)
        except BaseException:
            with undisturbed():
                self.close()
            raise
        self.servers = f"127.0.0.1:{free_port()}"

    def _target(self, to: str, found: dict[str, str]) -> Target:
        if to == "postgres":
            log = self._folder / "postgresql.log"
            return PostgresTarget(Postgres(self._own / "postgres", log, found, self._clock))
        if to == "delta":
            return DeltaTarget(self._folder / "lake")
        return DuckDBTarget(self._folder / "shop.duckdb") if to == "duckdb" else SQLiteTarget(self._folder / "shop.db")

    def start(self) -> None:
        """All but the capture and the pipeline, for which there have to be tables first."""
        broker = self._command("broker", *self._broker())
        self.processes = [self.mariadb.process, *self.target.processes, broker]
        self.mariadb.start()
        self.target.start()
        broker.start()

    def begin(self) -> None:
        """The capture, and the pipeline once there is a topic."""
        address = f"mysql://root@127.0.0.1:{self.mariadb.port}/{DATABASE}"
        to = ["--to", f"kafka://{self.servers}/{TOPIC}", "--partitions", str(PARTITIONS)]
        self.processes.append(self._command("cdc", "cdc", address, *to))
        self.processes[-1].start()
        while not self.has_topic():
            self.keep()
            self._clock.sleep_s(0.05)
        self.processes.append(self._command("pipeline", "run", str(self._pipeline()), "--live", "--json"))
        self.processes[-1].start()

    def keep(self) -> None:
        """Start again what has ended."""
        for process in self.processes:
            process.keep()

    def close(self) -> None:
        """End all of it."""
        for process in reversed(self.processes):
            process.stop()
        if self._consumer is not None:
            self._consumer.close()
        shutil.rmtree(self._own, ignore_errors=True)

    def settle(self) -> None:
        """End the capture and the pipeline, and run that one once more: the last batch that Spark notes as done may be on
        its way into the target still."""
        for process in [each for each in self.processes if each.name in ("cdc", "pipeline")]:
            process.stop()
            self.processes.remove(process)
        last = self._command("pipeline", "run", str(self._pipeline()), "--json")
        self.processes.append(last)
        last.finish()

    def kill(self, name: str) -> bool:
        """SIGKILL to the process of that name; `keep` starts it again. False where it was not running."""
        return any(process.name == name and process.kill() for process in self.processes)

    # How far each is -------------------------------------------------------------------------------------------

    def has_topic(self) -> bool:
        with suppress(KafkaException):
            return TOPIC in self._asking().list_topics(timeout=_ANSWER_S).topics
        return False

    def captured(self) -> Position | None:
        """Up to where the topic has it all; None where nobody answers."""
        with suppress(KafkaException, ConnectionLost, EnvironmentMissing):
            servers = {"bootstrap.servers": self.servers, "log_level": 0}
            found = last_position(servers, f"{TOPIC}.position", patience_s=_ANSWER_S)
            return found or Position("")
        return None

    def applied(self) -> int:
        """About how many changes the target has: Kafka's marks of transactions are counted too."""
        return sum(self._read().values())

    def all_applied(self) -> bool:
        """Whether the target has all that the topic has, but for the last batch, which may be on its way."""
        with suppress(KafkaException):
            read = self._read()
            return all(read.get(str(number), 0) == self._end_of(number) for number in range(PARTITIONS))
        return False

    def _read(self) -> dict[str, int]:
        """Where each partition was read up to by the last batch that is done, as Spark's checkpoint says it."""
        checkpoint = self._folder / "checkpoint"
        with suppress(OSError):  # it removes old ones
            done = max((int(each.name) for each in (checkpoint / "commits").glob("[0-9]*")), default=None)
            if done is not None:
                offsets: dict[str, int] = json.loads((checkpoint / f"offsets/{done}").read_text().splitlines()[2])[
                    TOPIC
                ]
                return offsets
        return {}

    def _end_of(self, partition: int) -> int:
        asked = [TopicPartition(TOPIC, partition, -1)]
        return int(self._asking().offsets_for_times(asked, timeout=_ANSWER_S)[0].offset)

    def _asking(self) -> Consumer:
        if self._consumer is None:
            settings = {"group.id": "stage", "isolation.level": "read_committed", "log_level": 0}
            self._consumer = Consumer({"bootstrap.servers": self.servers, **settings})
        return self._consumer

    # The commands ----------------------------------------------------------------------------------------------

    def _command(self, name: str, *arguments: str) -> Process:
        return Process(
            name, [sys.executable, "-P", "-m", "waterclock.cli", *arguments], self._folder / f"{name}.log", self._clock
        )

    def _broker(self) -> list[str]:
        return ["broker", "--port", self.servers.rpartition(":")[2], "--data", str(self._folder / "broker")]

    def _pipeline(self) -> Path:
        file = self._folder / "pipeline.toml"
        text = (files(__package__) / "pipeline.toml").read_text()
        text = text.replace("localhost:9092", self.servers)
        file.write_text(text.partition("[sink]")[0] + f"[sink]\n{self.target.sink()}")
        return file
