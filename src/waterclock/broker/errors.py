"""What can go wrong with a broker outside of its protocol."""

from waterclock.errors import UsageError, WaterclockError


class LogDamaged(WaterclockError):
    """A file of the log is broken where no crash can break it; the message names the file, the byte and the ways on."""


class DataInUse(UsageError):
    """Another broker has the data folder open."""
