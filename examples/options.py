"""Which options each demo has. Another one's is refused: who says --kills to a demo without kills would believe in them."""

from __future__ import annotations

import argparse
from typing import Any

from waterclock.errors import UsageError

_DEMOS = {
    "seed": ("fines", "kills", "cdc", "delays"),
    "folder": ("fines", "kills", "cdc", "delays"),
    "changes": ("cdc",),
    "to": ("cdc",),
    "on": ("kills", "delays"),
    "kills": ("kills", "cdc", "delays"),
    "reminders": ("delays",),
    "cancel": ("delays",),
    "quick": ("delays",),
}
DEFAULTS: dict[str, Any] = {"seed": 1, "changes": 200_000, "on": "own", "to": "postgres"}


def settle(arguments: argparse.Namespace) -> None:
    """Put the defaults in where nothing was said; UsageError where something was that the demo does not have."""
    for option, demos in _DEMOS.items():
        if getattr(arguments, option) is None:
            setattr(arguments, option, DEFAULTS.get(option))
        elif arguments.name not in demos:
            raise UsageError(f"--{option} is none of `demo {arguments.name}`; it is of {' and '.join(demos)}")
