"""The queue of completions, compiled or plain, as lock.py says it of the lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["Completions"]

if TYPE_CHECKING:
    from waterclock.purgatory.completions import Completions
else:
    try:
        from waterclock.purgatory._completions import Completions
    except ImportError:
        from waterclock.purgatory.completions import Completions
