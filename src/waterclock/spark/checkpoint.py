"""What waterclock reads from, and adds to, a Spark checkpoint folder.

metadata            Spark's: the query's id
offsets/N           Spark's: what batch N reads
waterclock.json     ours: the settings that must not change while the checkpoint lives
heartbeats/         ours: a second source beside the files; the closing heartbeat is a file in it
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from waterclock.errors import StateMismatch, UsageError

CLOSING = "9999-12-31T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint folder on this machine; it need not exist yet."""

    path: Path

    @property
    def heartbeats(self) -> Path:
        return self.path / "heartbeats"

    def query_id(self) -> str | None:
        """The id of the query that the checkpoint belongs to; None where there is none yet."""
        metadata = self.path / "metadata"
        return json.loads(metadata.read_text())["id"] if metadata.exists() else None

    def last_batch(self) -> int | None:
        """The last batch whose offsets were written."""
        return max((int(p.name) for p in self.path.glob("offsets/*") if p.name.isdigit()), default=None)

    def offsets(self, batch_id: int) -> str | None:
        """What batch `batch_id` read, in Spark's words."""
        file = self.path / "offsets" / str(batch_id)
        return file.read_text() if file.exists() else None

    def claim(self, settings: Mapping[str, Any]) -> None:
        """Write down `settings` at the first start; StateMismatch where a later start has others."""
        file = self.path / "waterclock.json"
        self.heartbeats.mkdir(parents=True, exist_ok=True)
        if not file.exists():
            _write(file, json.dumps(settings, indent=1))
            return
        before = json.loads(file.read_text())
        changed = sorted(name for name in before.keys() | settings.keys() if before.get(name) != settings.get(name))
        if changed:
            raise StateMismatch(
                f"the pipeline changed since the checkpoint {self.path} was made ({', '.join(changed)}): its state would "
                "mean something else now. Undo the change, or start over with --fresh."
            )

    def close(self) -> None:
        """Add the closing heartbeat; again is the same."""
        file = self.heartbeats / "closing.jsonl"
        if not file.exists():
            _write(file, json.dumps({"closing": CLOSING}) + "\n")

    def refuse_if_closed(self, source: Path) -> None:
        """Raise UsageError where files came after the closing heartbeat: all of them would be late."""
        closing = self.heartbeats / "closing.jsonl"
        if not closing.exists():
            return
        late = [p.name for p in source.iterdir() if p.stat().st_mtime > closing.stat().st_mtime]
        if late:
            raise UsageError(
                f"the pipeline was closed, and {len(late)} files came after that ({min(late)}, ...): they would all be "
                "late. Start over with --fresh; and for input that goes on, set close = false under [time]."
            )


def _write(file: Path, text: str) -> None:
    fresh = file.with_name(f".{file.name}.new")
    fresh.write_text(text)
    fresh.replace(file)
