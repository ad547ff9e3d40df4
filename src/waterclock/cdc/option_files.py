"""Files that options name: a password, librdkafka's settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from waterclock.errors import UsageError


def settings_of(file: str | None) -> dict[str, Any]:
    """librdkafka's settings from a file: `key=value`, a line each; # begins a comment."""
    lines = read_file("--kafka-config", file).splitlines() if file else []
    settings = {}
    for line in (line.strip() for line in lines):
        if line and not line.startswith("#"):
            key, sign, value = line.partition("=")
            if not sign:
                raise UsageError(f"--kafka-config: the line {key.split()[0]!r} is no KEY=VALUE.")
            settings[key.strip()] = value.strip()
    return settings


def read_file(option: str, file: str) -> str:
    try:
        return Path(file).read_text()
    except OSError as error:
        raise UsageError(f"{option}: {file} cannot be read: {error.strerror}.") from None
