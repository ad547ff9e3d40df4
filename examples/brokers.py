"""Apache Kafka for the demos that can be shown on it: started in a folder, gone at the end of the block."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from waterclock.errors import EnvironmentMissing


def check_for_kafka() -> None:
    """EnvironmentMissing, with the remedy, where Apache Kafka cannot be had."""
    from waterclock.bench.servers import apache

    if not any(apache.LIB.glob("kafka_*.jar")) and not (shutil.which("mvn") and shutil.which(apache.JAVA)):
        raise EnvironmentMissing(
            "Apache Kafka needs Java 17 and Maven: install them (Debian: apt install default-jre-headless maven), or take "
            "--on own",
            door="" if shutil.which(apache.JAVA) else "spark",  # doctor knows Java, and no Maven
        )


@contextmanager
def apache_kafka(folder: Path) -> Iterator[str]:
    """Where it is reached. EnvironmentMissing where it does not start."""
    from waterclock.bench.servers.apache import ApacheKafka

    try:
        kafka = ApacheKafka(folder, {})
    except RuntimeError as error:
        raise EnvironmentMissing(f"Apache Kafka does not start: {error}") from error
    try:
        yield kafka.bootstrap
    finally:
        kafka.stop()
