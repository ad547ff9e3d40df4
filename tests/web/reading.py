"""Pages fetched over HTTP, and Prometheus's text read back by Prometheus's own parser."""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import Any

from prometheus_client.parser import text_string_to_metric_families


def read_back(page: str) -> dict[str, tuple[str, list[tuple[str, dict[str, str], float]]]]:
    """name -> (kind, samples), as Prometheus reads it; a counter's name without _total."""
    found = {}
    for family in text_string_to_metric_families(page):
        assert family.documentation
        found[family.name] = (family.type, [(s.name, dict(s.labels), s.value) for s in family.samples])
    return found


def get(url: str) -> tuple[int, str, Any]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode(), answer.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(), error.headers
