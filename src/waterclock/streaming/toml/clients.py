"""Where Kafka is, and the settings of its clients: the same words under [source] and [sink]."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from waterclock.errors import UsageError
from waterclock.kafka.settings import from_environment, refuse_own
from waterclock.streaming.toml.values import flat


def servers_from(table: Mapping[str, Any], where: str) -> str:
    """`servers`: addresses as a text, or as a list of texts."""
    given = table.get("servers")
    servers = ",".join(given) if isinstance(given, list) and all(isinstance(s, str) for s in given) else given
    if not isinstance(servers, str) or not re.fullmatch(r"[^\s,]+( *, *[^\s,]+)*", servers):
        raise UsageError(f"{where}: 'servers' must be addresses such as \"localhost:9092\", got {given!r}")
    return servers


def client_from(given: Mapping[str, Any], where: str, own: Mapping[str, str]) -> dict[str, str]:
    """Settings of librdkafka, secrets taken from the environment; `own`: those that nobody else may say, and why."""
    settings = dict(flat(where, from_environment(where, given)))
    refuse_own(where, settings, own)
    return settings
