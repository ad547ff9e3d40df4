"""Bugs planted in the relay's source: what universes with relays have to find."""

from __future__ import annotations

TURN, OWNER, START = "owner.turn", "owner.owner", "owner.take_over"
RAISED = "                raise\n            turn.undo() if"
PACKAGE, KINDS = "waterclock.relay.", ("relay",)
_EDITS: dict[str, tuple[str, str, str]] = {
    "relay-settled-forgotten": (
        TURN, '(State.DELIVERED, self._rows["origin"]), *', '(State.DELIVERED, self._rows["origin"][:0]), *'),
    "relay-fenced-late": (START, "self.ask, self.fence, self.find_ends,", "self.ask, self.find_ends, self.fence,"),
    "relay-end-unread": (OWNER, "return not self.may_have_missed_input and read >= self.reads_to", "return read >= 0"),
    "relay-one-position": (
        START, "max(self._replay.answered, low)\n", "max(self._replay.answered, low, self.store.data_position)\n"),
    "relay-answered-early": (
        OWNER, "self.command_position if self.waiting or self.letters else self.position", "self.position"),
    "relay-before-due": (OWNER, "self.due_soon.take(min(now_ms,", "self.due_soon.take(min(now_ms + 100,"),
    "relay-delivers-late": (TURN, "        if owner.was_late:", "        if False:"),
    "relay-cut-too-far": (
        "upkeep.upkeep", "min(log_span.moves.swept, owner.command_position,", "min(owner.command_position,"),
    "relay-files-unflushed": ("store.files", "                    self._files.flush(name)\n", "                    pass\n"),
    "relay-cancelled-delivered": (TURN, "            owner.drop(list(self._gone))", "            pass"),
    "relay-applied-uncommitted": (
        TURN, RAISED, "            turn.undo() if"),
    "relay-copies-unnamed": ("upkeep.lap", "stretches_of(sorted(self._offsets))", "stretches_of([])"),
    "relay-standby-ahead": (
        "standby.follower", "checkpoint_steps(self.position,", "checkpoint_steps(self.position + 1,"),
}  # fmt: skip
TABLE = {name: (edit,) for name, edit in _EDITS.items()}
"""(module of the relay, text that is there once, what stands there instead)."""
