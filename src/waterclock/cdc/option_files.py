"""Files that options name: a password, librdkafka's settings."""

from __future__ import annotations

from pathlib import Path

from waterclock.errors import UsageError
from waterclock.kafka.settings import from_text


def settings_of(file: str | None) -> dict[str, str]:
    """librdkafka's settings from a file: `key=value`, a line each; # begins a comment."""
    return from_text("--kafka-config", read_file("--kafka-config", file)) if file else {}


def read_file(option: str, file: str) -> str:
    try:
        return Path(file).read_text()
    except OSError as error:
        raise UsageError(f"{option}: {file} cannot be read: {error.strerror}.") from None
