"""Files with secrets: nobody but their owner may read them."""

from __future__ import annotations

import os
import stat

from waterclock.errors import UsageError


def check_private(path: str, option: str) -> None:
    """UsageError if others than its owner may read or write the file, or if it cannot be read."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise UsageError(f"{option} {path}: {error.strerror}") from error
    if stat.S_IMODE(mode) & 0o077:
        raise UsageError(f"{option} {path} may be read by others than you: chmod 600 {path}")
