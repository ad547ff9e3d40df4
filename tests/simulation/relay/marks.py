"""Marks in the relay's rare branches: (module, how the statement begins that a mark stands before)."""

from __future__ import annotations

PACKAGE = "waterclock.relay."
BY_MODULE: dict[str, dict[str, str]] = {
    "relay": {
        "more is with the client": "                owner.heard()\n                owner.may_have_missed_input |=",
        "an owner's partition is taken away": (
            "                self._stands_in[number] = now_ns + STANDS_IN_NS\n                self._member"
        ),
        "an owner may have missed input": "                    owner.may_have_missed_input = True\n",
        "a take-over is put off": "        pending.backoff.failed()\n",
        "an owner fails": '        log.warning("%s-%d is taken over anew',
        "where it was read nothing is left": '                where = f"{self.topics.input}-{message.partition()}"\n',
        "a relay stands in for another": "                self._signs.take(number)\n",
        "whoever stands in lets go": "                self._stands_in.pop(number, None)\n",
        "a relay joins when it has read up": "                member.join()\n",
    },
    "cluster.group": {"a relay joins anew": "        self._fenced_ns.append(now_ns)\n"},
    "owner.take_over": {
        "the files are damaged": "            self.store.set_aside(str(error), self._input[0])",
        "a transaction that is not ended": '            log.warning(\n                "%s-%d: what stands there',
        "the files are another log's": "            store.set_aside(why, low)\n",
        "the files begin anew": "            store.begin(low)\n",
        "the log was cut behind the files": "            store.skip_to(low)\n",
        "a snapshot is restored": "                restore(self._store, snapshot)\n",
        "a move is read": "            self.log_span.moved(record)\n",
        "what one owner learned goes to the next": "            refused, letters, owner.pace, owner.reports_each =",
    },
    "owner.turn": {
        "a turn looks ahead": "            self.owner.look_ahead()\n",
        "more waits than a turn carries": "            self._position = position\n",
        "a turn is made smaller": "            self.owner.pace = self.owner.pace.failed(self.carried)\n",
        "a turn is aborted": "        self.owner.producer.abort()\n",
        "a turn is undone": "        owner = self.owner\n        if not self.learn():\n",
        "a turn is applied": "        owner.checkpoints.is_changed = True\n",
        "turns are given up": "                turn.owner.producer.give_up()\n",
        "the end is looked for again": "            owner.catch_up(context.logs.bounds",
    },
    "owner.owner": {
        "the end was another reading's": "                return 0\n        self._reached = max",
        "records wait for the disk": "            self.held += came\n",
        "files are set aside": "            self.store.set_aside(str(error), self.context.begins(self.number))\n",
    },
    "upkeep.upkeep": {
        "a snapshot is committed": "        owner.log_span.snapshotted(self._snapshot.replay_from, self._size)\n",
        "a log is cut off": "                self._is_asked = True\n",
        "the input is cut off": "            log_span.begins(low, log_span.settled_low)\n",
    },
    "upkeep.lap": {
        "a lap goes on in another turn": "                self.swept = record.offset()\n",
        "copies are refused": "            self._owner.producer.abort()\n",
        "a lap is over": "            self._counts.laps += 1\n",
    },
    "standby.follower": {
        "a record is doubtful": (
            "            before = [message for message in self.held if message.offset() < self._doubtful]\n"
        ),
        "a standby's files are set aside": (
            "                    self.store.set_aside(str(error), self._context.begins(self.number))\n"
        ),
        "a standby has read what is settled": "            self._replay.look_behind()\n",
    },
    "standby.standby": {
        "a follower fails": "            failure = self._failed.get(number) or _Failure(",
        "a standby makes room": "            self._make_room(now_ns)\n",
        "a standby is let go": (
            "        self._queue = deque(message for message in self._queue if message.partition() != number)\n"
        ),
    },
    "store.ledger": {
        "a journal has a gap": "            self._has_gap = True\n            raise",
        "the ledger is written anew": "        self._snapshot = fresh\n",
        "a journal is read again": "            self._replay(self._journal.content())\n",
    },
}  # fmt: skip
