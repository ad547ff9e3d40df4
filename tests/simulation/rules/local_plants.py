"""Bugs planted in the pipeline without Spark: what universes with it have to find."""

from __future__ import annotations

PIPELINE = "local.pipeline"
PACKAGE, KINDS = "waterclock.", ("local",)
_EDITS: dict[str, tuple[str, str, str]] = {
    "local-forgotten-before-it-lasts": (PIPELINE, "lasts=folds", "lasts=False"),
    "local-snapshot-ahead-of-the-sink": (
        PIPELINE, "        written = self._outlets.write(batch)  # 2 3 4 5\n",
        "        self._keep(made.written)\n        written = self._outlets.write(batch)  # 2 3 4 5\n"),
    "local-replay-begins-late": (
        PIPELINE, "in range(at + 1, self._batch + 1):  # 3", "in range(at + 2, self._batch + 1):  # 3"),
    "local-watermarks-forgotten": (PIPELINE, "        if at >= 0:\n", "        if at < 0 and records:\n"),
}  # fmt: skip
TABLE = {name: (edit,) for name, edit in _EDITS.items()}
"""(module of the product, text that is there once, what stands there instead)."""
