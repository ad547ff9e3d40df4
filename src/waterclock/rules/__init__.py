"""Per-key rules on streams of events, as data; docs/rules.md is the contract."""

from waterclock.rules.events import Result
from waterclock.rules.model import Rules

__all__ = ["Result", "Rules"]
