"""Bugs planted in the relay's source as it is imported: (module, text that is there once, what stands there instead)."""

from __future__ import annotations

TURN, OWNER, START = "waterclock.relay.owner.turn", "waterclock.relay.owner.owner", "waterclock.relay.owner.take_over"
UPKEEP, LAP = "waterclock.relay.upkeep.upkeep", "waterclock.relay.upkeep.lap"
FILES, FOLLOWER = "waterclock.relay.store.files", "waterclock.relay.standby.follower"
RESULT = "            ended.result()\n"
PLANTS = {
    "settled-forgotten": [(TURN, '(State.FIRED, self._rows["origin"]), *', '(State.FIRED, self._rows["origin"][:0]), *')],
    "fenced-late": [(START, "self.ask, self.fence, self.find_ends,", "self.ask, self.find_ends, self.fence,")],
    "end-unread": [(OWNER, "return not self.may_have_missed_input and read >= self.reads_to", "return read >= 0")],
    "one-position": [(START, "max(self._replay.answered, low)\n        filed",
                      "max(self._replay.answered, low, self.store.data_position)\n        filed")],
    "answered-early": [(OWNER, "self.command_position if self.waiting or self.letters else self.position",
                        "self.position")],
    "before-due": [(OWNER, "self.due_soon.take(min(now_ms,", "self.due_soon.take(min(now_ms + 100,")],
    "cut-too-far": [(UPKEEP, "min(log_span.moves.swept, owner.command_position,", "min(owner.command_position,")],
    "files-unflushed": [(FILES, "                    self._files.flush(name)\n", "                    pass\n")],
    "cancelled-delivered": [(TURN, "            owner.drop(list(self._gone))", "            pass")],
    "applied-uncommitted": [(TURN, RESULT, f"            with __import__('contextlib').suppress(ConnectionLost):\n    {RESULT}")],
    "copies-unnamed": [(LAP, "stretches_of(sorted(self._offsets))", "stretches_of([])")],
    "standby-ahead": [(FOLLOWER, "checkpoint_steps(self.position,", "checkpoint_steps(self.position + 1,")],
}  # fmt: skip
