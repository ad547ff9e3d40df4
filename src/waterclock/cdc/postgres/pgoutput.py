"""PostgreSQL's messages of logical decoding (`pgoutput`, protocol 1), turned into row changes: no connection, no clock.

Rule 1: what a message does not bring is left out of `data`, never made up: a large value that an update did not touch
        (TOAST), and all but the key of a deleted row. REPLICA IDENTITY FULL brings them. If no reader may have such
        a value it is read by the row's key: of a row that is new under its key at once, of others as catalog.py says.
Rule 2: messages come transaction by transaction in the order of their commits; the place moves at the commit.
Rule 3: nothing is refused for a table that nobody wants, nor in a transaction that is passed over.
Rule 4: records of a transaction have one order, however many wait for values that are read: a start that goes on inside
        of it counts them.
Rule 5: a table has a number, for good. One that is met under a name that another one had, or that had another name itself,
        is to come again: before its first change. What the names had is in the position (held.py), as of its last commit.
        One without changes the log never names: the catalog is asked, and its answer holds where the log has come as far.
"""

from __future__ import annotations

import logging
import struct
from collections import deque
from collections.abc import Callable, Iterator, Mapping

from waterclock.cdc.held import Held
from waterclock.cdc.position import Position
from waterclock.cdc.postgres.catalog import AT_ONCE, SMALL, LargeValues, TableCatalog
from waterclock.cdc.postgres.rows import UNTOUCHED, Relation, Row, described, is_whole, row_at, touched
from waterclock.cdc.source import DeadLetter, Item, Refusal, SourceMark, TablesRenewed, stop
from waterclock.changes.maxwell import DELETE, INSERT, TRUNCATE, UPDATE, MaxwellMessage, next_sequence
from waterclock.changes.written import Written
from waterclock.errors import Unreadable

log = logging.getLogger("waterclock.cdc")
_EPOCH_S = 946_684_800  # 2000-01-01, from which PostgreSQL counts

Change = tuple[str, Row, Row | None]  # what it is, the row, former values


def lsn_text(lsn: int) -> str:
    """An LSN as PostgreSQL writes it.

    >>> lsn_text(0x16B374D48), lsn_number("1/6B374D48") == 0x16B374D48
    ('1/6B374D48', True)
    """
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_number(text: str) -> int:
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


class Decoder:
    """Takes messages one by one; `skip` names transactions that are left out, by their commit's LSN; `refusal` says what
    is done about a row that cannot be read; `unknown` why a table's rows must not be passed on, "" if they may; `renews`:
    whether a table that is met under another name is to come again."""

    def __init__(
        self,
        position: Position,
        wanted: Callable[[str, str], bool],
        catalog: TableCatalog,
        *,
        skip: frozenset[str] = frozenset(),
        refusal: Refusal = stop,
        unknown: Callable[[str, str], str] = lambda schema, table: "",
        renews: bool = False,
    ) -> None:
        self.lsn = lsn_number(position.place)
        self.xid = 0  # of the transaction in hand, or of the last one: 32 of its 64 bits
        self.is_inside = False  # between a transaction's beginning and its commit
        self._settled = self._sequence = position.sequence
        self._done, self._half_sent, self._holds = position.rows, position.inside, position.held
        self._unknown, self._renews = unknown, renews
        self._wanted, self._catalog = wanted, catalog
        self._skip, self._refusal = skip, refusal
        self._numbers = dict(position.held.numbers if position.held else {})
        self._met = dict[str, int]()  # of rule 5, in the transaction in hand
        self._relations: dict[int, Relation] = {}
        self._brought: set[int] = set()  # those that are wanted
        self._xoffset = self._given = self._ts = 0
        self._gtid = ""
        self._large = LargeValues(catalog)
        self._held: deque[MaxwellMessage] = deque()  # one, since it may be the last; more while some lack values
        self._lacking: list[tuple[Relation, Row]] = []  # of those that are held
        self._unshown = set[int]()  # relations whose schemas were not given out yet
        self._passed = False  # whether the transaction stands in Kafka already, or is to be left out
        self._done_before = False  # the first of the two
        self._takes: dict[int, Callable[[bytes], Iterator[Item]]] = {
            ord("B"): self._begin,
            ord("C"): self._commit,
            ord("R"): self._relation,
            ord("T"): self._truncate,
            **dict.fromkeys(b"IUD", self._row_change),
            **dict.fromkeys(b"YOM", lambda message: iter(())),  # a type's name, an origin, a word of the application
        }

    def take(self, message: bytes) -> Iterator[Item]:
        """What follows from the next message; Unreadable if it is not known."""
        take = self._takes.get(message[0])
        if take is None:
            raise Unreadable(
                f"PostgreSQL sends a message {chr(message[0])!r}, which protocol 1 of pgoutput does not have."
            )
        return take(message)

    def position(self) -> Position:
        return Position(lsn_text(self.lsn), self._settled, held=self._holds)

    @property
    def taken(self) -> int:
        """How many records of the open transaction were read."""
        return self._xoffset

    def is_between(self) -> bool:
        """Whether what was taken last ended a transaction, or stood behind one; none is half in Kafka."""
        return not self.is_inside and not self._done

    def numbered(self, seconds: int) -> int:
        """Between two transactions: a sequence of its own, from which the next one counts on."""
        self._sequence = self._settled = next_sequence(self._settled, seconds)
        return self._settled

    def moved(self, lsn: int) -> Iterator[Item]:
        """Everything up to there was sent, and taken; a place that has half of a transaction behind it stays."""
        if self.is_between() and lsn > self.lsn:
            self.lsn = lsn
            yield SourceMark.MOVED

    def _begin(self, message: bytes) -> Iterator[Item]:
        commit_lsn, microseconds, self.xid = struct.unpack_from(">QqI", message, 1)
        self.is_inside = True
        self._done_before = commit_lsn < self.lsn  # a commit's end lies behind its beginning
        self._ts = _EPOCH_S + microseconds // 1_000_000
        self._gtid = lsn_text(commit_lsn)
        self._xoffset = 0
        self._met.clear()
        self._passed, self._given = self._done_before or self._gtid in self._skip, 0
        if self._done_before:
            return iter(())
        self._sequence = next_sequence(self._sequence, self._ts)
        if self._passed:
            self._large.forget_all()
        if self._done and self._half_sent != self._gtid:
            raise Unreadable(
                f"The transaction {self._half_sent} is half in Kafka, and PostgreSQL sends {self._gtid} first."
            )
        return iter(())

    def _commit(self, message: bytes) -> Iterator[Item]:
        self.is_inside = False
        if self._done_before:
            return
        if self._held:
            self._held.append(self._held.pop()._replace(commit=True))
            yield from self._let_go(0)
        self.lsn = struct.unpack_from(">Q", message, 10)[0]
        self._done = 0
        self._settled = self._sequence
        self._keep_numbers()
        yield SourceMark.COMMITTED

    def _keep_numbers(self) -> None:
        if self._met:
            self._numbers |= self._met
            self._met.clear()
            self._holds = self._holds and self._holds.with_numbers(self._numbers)

    def _relation(self, message: bytes) -> Iterator[Item]:
        relation, replica_key = described(message)
        key, unsure = replica_key, ""
        is_wanted = self._wanted(relation.schema, relation.table)
        (self._brought.add if is_wanted else self._brought.discard)(relation.number)
        if is_wanted:
            unsure = self._unknown(relation.schema, relation.table)
            try:
                if relation.full or not replica_key:
                    key = self._catalog.key_of(relation.number, relation.names)
            except Unreadable as reason:
                key, unsure = (), str(reason)
            relation = relation._replace(types=self._catalog.types_of(relation))
        self._relations[relation.number] = relation._replace(key=key, unsure=unsure).planned()
        self._unshown.add(relation.number)
        if not is_wanted and not self._passed:
            self._became(relation.title, relation.number)
        return iter(())

    def _became(self, name: str, number: int) -> str:
        """Rule 5: why the table is not what its name had, "" if it is."""
        known = self._numbers | self._met
        former = [each for each, its in known.items() if its == number and each != name]
        self._met |= {**dict.fromkeys(former, 0), name: number}
        if former:
            return "Renamed"
        return "Another table than before" if known.get(name, number) != number else ""

    def _met_as(self, name: str, number: int, where: str) -> Iterator[Item]:
        """What is said of a table that is not what its name had."""
        why = self._became(name, number)
        if why and self._renews:
            yield TablesRenewed((name,), self._sequence, why)
        elif why:
            log.warning(
                "%s is another table than before, or had another name (%s). What it had before does not come, and what "
                "a target has under this name stays. To have all of it again: waterclock cdc snapshot, while the capture "
                "runs without --snapshot never.",
                name,
                where,
            )

    def unlike(self, there: Mapping[str, int]) -> dict[str, int]:
        """Those of these tables that are wanted, held, and not what their names had, as far as the log was read."""
        held, had = self._holds or Held(), set(self._numbers.values())
        return {
            name: number
            for name, number in there.items()
            if (name in self._numbers or number in had)
            and self._numbers.get(name) != number
            and held.holds(name)
            and self._wanted(*name.split(".", 1))
        }

    def became(self, there: Mapping[str, int]) -> Iterator[Item]:
        """Between two transactions: the catalog had these tables, and the log has come as far. Rule 5."""
        for name, number in there.items():
            yield from self._met_as(name, number, f"up to {lsn_text(self.lsn)}")
        self._keep_numbers()
        yield SourceMark.COMMITTED

    def _shown(self, relation: Relation) -> Iterator[Item]:
        """What is said before a table's first change."""
        self._unshown.remove(relation.number)
        yield from self._met_as(relation.title, relation.number, f"transaction {self._gtid}")
        yield self._catalog.shape(relation, (self._sequence, self._xoffset))

    def _row_change(self, message: bytes) -> Iterator[Item]:
        number = int.from_bytes(message[1:5], "big")
        relation = self._relations[number]
        if self._passed or number not in self._brought:
            return
        try:
            changes = self._read(relation, message)
        except (Unreadable, UnicodeError) as reason:
            yield from self._put_aside(relation, message, reason)
            return
        if number in self._unshown:
            yield from self._shown(relation)
        for kind, data, old in changes:
            self._note(relation, kind, data, len(message))
            self._hold(relation, kind, data, old)
            if not self._lacking and len(self._held) == 2:  # as _let_go does, without two more generators for each row
                self._given += 1
                record = self._held.popleft()
                if self._given > self._done:
                    yield record
            elif not self._lacking or len(self._held) >= AT_ONCE:
                yield from self._let_go(1)

    def _read(self, relation: Relation, message: bytes) -> list[Change]:
        if relation.unsure:
            raise Unreadable(f"{relation.schema}.{relation.table}: {relation.unsure}")
        if message[0] == ord("U"):
            changes = _updated(relation, message)
        else:
            row, _ = row_at(relation, message, 6)
            changes = [(INSERT, row, None) if message[0] == ord("I") else (DELETE, _known(relation, row), None)]
        for kind, row, _ in changes:
            if kind == INSERT and not is_whole(row):
                self._large.fill_table(relation, [row])
        return changes

    def _note(self, relation: Relation, kind: str, row: Row, length: int) -> None:
        """Which rows went out whole; of those that may never have, the values that an update left out are to be read."""
        if is_whole(row):
            if kind != DELETE and length > SMALL and len(row) == len(relation.names):
                self._remember(relation, row)
        elif self._large.has(relation, row):
            for name in row.keys() - touched(row).keys():
                del row[name]  # type: ignore[attr-defined]  # a row that lacks values is a dict
        else:
            self._lacking.append((relation, row))
            self._remember(relation, row)

    def _remember(self, relation: Relation, row: Row) -> None:
        if not self._done:  # else it may be a former start that sent it, and as that found it
            self._large.sent(relation, row)

    def _truncate(self, message: bytes) -> Iterator[Item]:
        (count,) = struct.unpack_from(">I", message, 1)
        for number in struct.unpack_from(f">{count}I", message, 6):
            relation = self._relations[number]
            if not self._passed and number in self._brought:
                self._hold(relation._replace(key=()), TRUNCATE, {})
                if not self._lacking or len(self._held) >= AT_ONCE:
                    yield from self._let_go(1)

    def _hold(self, relation: Relation, kind: str, data: Row, old: Row | None = None) -> None:
        number = self._xoffset
        self._xoffset = number + 1
        where = (relation.schema, relation.table, kind, self._ts, self._gtid, self._sequence, number, False)
        self._held.append(MaxwellMessage(*where, relation.key, data, old, None, relation.types))

    def _let_go(self, keep: int) -> Iterator[Item]:
        """Give out what is held, but for the last `keep`, with the values that it lacks."""
        lacking, self._lacking = self._lacking, []
        self._large.fill(lacking)
        while len(self._held) > keep:
            yield from self._give(self._held.popleft())

    def _put_aside(self, relation: Relation, message: bytes, reason: Exception) -> Iterator[Item]:
        said = str(reason)
        if isinstance(reason, UnicodeError):
            said = f"A row of {relation.schema}.{relation.table} holds bytes that are no UTF-8 ({reason})."
        where = (self._gtid, self._ts, self._xoffset, f"message {chr(message[0])}", said, message)
        letter = self._refusal(DeadLetter(*where, relation.schema, relation.table))
        self._large.forget_all()
        self._xoffset += 1
        yield from self._let_go(1)  # rule 4: the letter's place must not depend on who waits
        yield from self._give(letter)

    def _give(self, record: MaxwellMessage | DeadLetter) -> Iterator[Item]:
        """What was given out before the last start stands in Kafka already."""
        self._given += 1
        if self._given > self._done:
            yield record


def _updated(relation: Relation, message: bytes) -> list[Change]:
    before: Row | None = None
    at = 5
    if message[at] != ord("N"):
        before, at = row_at(relation, message, at + 1)
    after, _ = row_at(relation, message, at + 1)
    if before is not None and not is_whole(
        after
    ):  # if the identity is not FULL, all but the key of the former row are NULL for show
        known = relation.names if relation.full else relation.key
        after = {name: before[name] if text == UNTOUCHED and name in known else text for name, text in after.items()}
    if before is not None and any(before[name] != after[name] for name in relation.key):
        return [(DELETE, _known(relation, before), None), (INSERT, after, None)]
    old = None
    if before is not None and relation.full:
        if isinstance(before, Written) and isinstance(after, Written):
            return [(UPDATE, after, before.former(after))]
        old = {name: text for name, text in before.items() if after[name] != text}
    return [(UPDATE, after, old)]


def _known(relation: Relation, row: Row) -> Row:
    """What a former row says for certain: all of it under REPLICA IDENTITY FULL, else its key."""
    if relation.full:
        return row
    known = row.key_alone() if isinstance(row, Written) else None
    return known if known is not None else {name: row[name] for name in relation.key}
