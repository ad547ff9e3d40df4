"""What Apache Kafka measured of itself: figures of other runs on another machine, to be shown only where that is said.

Rule 1: nothing here was measured beside ours. A table that shows it says so in the row's own name.
Rule 2: what was not published is not there; nothing is filled in between two sizes.
"""

from __future__ import annotations

from typing import Final

TIMER_NAME: Final = "Kafka SystemTimer 4.4 *"
TIMER_NOTE: Final = "* published by its own measurement on another machine (Java): not in this run"
TIMER_NS: Final = {
    "add": {1_000: 148.0, 1_000_000: 140.0, 10_000_000: 143.0},
    "cancel": {1_000: 81.0, 1_000_000: 192.0, 10_000_000: 307.0},
    "churn": {1_000: 227.0, 1_000_000: 856.0},
    "expire": {1_000: 559.0, 1_000_000: 456.0},
}
"""CPU ns an operation, by pending timers."""

PURGATORY_NOTE: Final = (
    "Kafka's purgatory, published by its own measurement on another machine (Java), not in this run: 3.1 to 4.6 us CPU\n"
    "a request at 50k to 200k requests/s (3 keys of 100); at 100k pending, one thread: watch 454 ns, force-complete\n"
    "96 ns, check 680 ns a completed operation."
)
PURGATORY_US: Final = (3.1, 4.6)
PURGATORY_RATES: Final = (50_000, 200_000)
