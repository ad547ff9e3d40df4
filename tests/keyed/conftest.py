"""The drivers that everything with a time for each key stands on."""

from tests.timer.conftest import timer

__all__ = ["timer"]
