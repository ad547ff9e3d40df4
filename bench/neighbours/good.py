"""A well-behaved client: so many requests a second, each with its answer before the next, and how long each took.

    python -m waterclock.bench.neighbours.good BOOTSTRAP SECONDS RATE [login]

In turn a record with acks=all, and the metadata of one topic.

Rule 1: a latency counts from the moment at which the request was due: who is kept waiting does not ask less.
Rule 2: every answer is looked at: an error ends it with exit code 1.
"""

from __future__ import annotations

import json
import struct
import sys
import time
from typing import Any

from waterclock.bench.broker.workloads import percentile
from waterclock.bench.neighbours import requests
from waterclock.errors import WrongAnswer

TOPIC = "good"
ERROR_AT_END = 30  # where, from the end of a Produce v7 answer, the error code of its one partition stands
GIVES_UP_S = 60.0  # beyond the time that was asked for


def run(bootstrap: str, seconds: float, rate: float, login: bool) -> dict[str, Any]:
    """Milliseconds: p50, p99 and the worst, and how many requests were answered."""
    batch = requests.batch(requests.record(b"", b"x" * 100), 1)
    asked = [requests.produce(TOPIC, 0, batch), requests.metadata(TOPIC)]
    took_ms: list[float] = []
    with requests.connected(bootstrap, login=login) as sock:
        begin_s = time.monotonic()
        for number in range(round(seconds * rate)):
            due_s = begin_s + number / rate
            if time.monotonic() - begin_s > seconds + GIVES_UP_S:
                break
            time.sleep(max(0.0, due_s - time.monotonic()))
            _check(requests.ask(sock, asked[number % 2]), number % 2 == 0)
            took_ms.append((time.monotonic() - due_s) * 1000)
    return {
        "requests": len(took_ms),
        "p50": percentile(took_ms, 0.5),
        "p99": percentile(took_ms, 0.99),
        "max": max(took_ms),
    }


def _check(answer: bytes, produced: bool) -> None:
    error = struct.unpack_from(">h", answer, len(answer) - ERROR_AT_END)[0] if produced else 0
    if error:
        raise WrongAnswer(f"error code {error}")


def main() -> None:
    bootstrap, seconds, rate, *login = sys.argv[1:]
    print(json.dumps(run(bootstrap, float(seconds), float(rate), bool(login))))


if __name__ == "__main__":
    main()
