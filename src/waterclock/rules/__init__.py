"""Per-key rules on streams of events, as data; docs/rules.md is the contract."""

from waterclock.rules.model import Rules
from waterclock.rules.results import Result

__all__ = ["Result", "Rules"]
