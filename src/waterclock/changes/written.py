"""Rows that compiled code has written; where nothing is compiled nobody makes one, and each row is a dict."""

from __future__ import annotations

try:
    from waterclock.changes._written import Form as Form
    from waterclock.changes._written import Written as Written
except ImportError:

    class Form:  # type: ignore[no-redef]
        """See _written.pyx."""

    class Written(dict[str, str]):  # type: ignore[no-redef]
        """See _written.pyx."""
