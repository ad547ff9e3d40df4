"""What an ALTER TABLE says of columns that no table map says: which one was renamed, and what a new one has in older rows.

Rule 1: the statement is read clause by clause, with its quotes and brackets; a clause that is none of these is passed over:
        what it made of the table stands in the next table map.
Rule 2: a new column's value in older rows is its DEFAULT if that is a literal; null if it may be null and has none.
        MariaDB and MySQL give 0 and '' to a NOT NULL of numbers and of texts. All else (now(), a sequence) is not known.
Rule 3: it is written as the server shows it, 7 of a decimal(9,2) as 7.00. Where the type may show it otherwise than the
        statement has it (a moment, a float, bytes), it is not known.
Rule 4: each column that a clause names may have another type behind it, and any column behind a clause that is not known
        here; but not by a new key, nor by another name. A new column has the type that the statement says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import NamedTuple

from waterclock.changes.table_schema import ColumnSchema

_PART = r"(`(?:[^`]|``)+`|\"(?:[^\"]|\"\")+\"|[\w$]+)"
_TOKEN = re.compile(r"`(?:[^`]|``)*`|\"(?:[^\"\\]|\\.|\"\")*\"|'(?:[^'\\]|\\.|'')*'|[(),]|[^`\"'(),]+", re.DOTALL)
_CHANGE = re.compile(rf"CHANGE\s+(?:COLUMN\s+)?(?:IF\s+EXISTS\s+)?{_PART}\s+{_PART}\s", re.IGNORECASE)
_RENAME = re.compile(rf"RENAME\s+COLUMN\s+(?:IF\s+EXISTS\s+)?{_PART}\s+TO\s+{_PART}\s*\Z", re.IGNORECASE)
_DROP = re.compile(rf"DROP\s+(?:COLUMN\b\s*)?(?:IF\s+EXISTS\b\s*)?{_PART}\s*(?:RESTRICT|CASCADE)?\s*\Z", re.IGNORECASE)
_ADD = re.compile(r"ADD\s+(?:COLUMN\b\s*)?(?:IF\s+NOT\s+EXISTS\s+)?", re.IGNORECASE)
_NO_COLUMN = re.compile(
    r"(?:CONSTRAINT|INDEX|KEY|PRIMARY|UNIQUE|FULLTEXT|SPATIAL|FOREIGN|CHECK|PARTITION|PERIOD|SYSTEM)\b", re.IGNORECASE
)
_COLUMN = re.compile(rf"{_PART}\s+(\w+(?:\s*\([^()]*\))?(?:\s+unsigned)?)", re.IGNORECASE)
_LITERAL = r"(?:'((?:[^'\\]|\\.|'')*)'|([+-]?[\d.]+(?:e[+-]?\d+)?)\b|(NULL|TRUE|FALSE)\b)"
_DEFAULT = re.compile(rf"\bDEFAULT\s+(\(\s*)?{_LITERAL}\s*(?(1)\)|(?!\())", re.IGNORECASE)
_OF_DEFAULT = re.compile(r"\bDEFAULT\s+\(?\s*\Z", re.IGNORECASE)
# a TIMESTAMP that does not say NULL has a moment, by an option of the server that was on by default until MariaDB 10.10
_COMPUTED = re.compile(
    r"\bDEFAULT\b|\bAS\s*\(|\bAUTO_INCREMENT\b|\bSERIAL\b|\bTIMESTAMP\b(?!.*\bNULL\b)", re.IGNORECASE | re.DOTALL
)
_NOT_NULL = re.compile(r"\bNOT\s+NULL\b", re.IGNORECASE)
_ZERO = re.compile(r"(?:tiny|small|medium|big)?int|integer|decimal|numeric|float|double|real|bool", re.IGNORECASE)
_INTEGER = re.compile(r"(?:tiny|small|medium|big)?int|integer|bool")
_DECIMAL = re.compile(r"(?:decimal|numeric)(?:\s*\(\s*\d+\s*(?:,\s*(\d+)\s*)?\))?")
_EMPTY = re.compile(r"(?:var)?char|(?:tiny|medium|long)?text", re.IGNORECASE)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "Z": "\x1a"}


_SAFE = re.compile(
    r"(?:ADD|DROP)\s+(?:UNIQUE|FULLTEXT|SPATIAL|INDEX|KEY|PRIMARY|FOREIGN)\b|RENAME\s+(?:COLUMN|INDEX|KEY)\b|"
    r"(?:ALGORITHM|LOCK|COMMENT|AUTO_INCREMENT|ENGINE|ROW_FORMAT|FORCE)\b",
    re.IGNORECASE,
)
_OF_COLUMNS = re.compile(
    r"(?:ADD|DROP|MODIFY|CHANGE|ALTER)\b(?!\s*(?:CONSTRAINT|CHECK|PARTITION|PERIOD|SYSTEM)\b)", re.IGNORECASE
)
_CHECK = re.compile(r"\bCHECK\b", re.IGNORECASE)
_AFTER = re.compile(rf"\bAFTER\s+{_PART}\s*\)?\s*\Z", re.IGNORECASE)


class ColumnAlteration(NamedTuple):
    """Of one statement: former names -> new ones, the columns that came, rule 4, and those that went, in small letters."""

    renamed: Mapping[str, str] = {}
    added: tuple[ColumnSchema, ...] = ()
    doubted: frozenset[str] | None = frozenset()
    dropped: frozenset[str] = frozenset()


def altered_columns(text: str) -> ColumnAlteration:
    """
    >>> altered_columns("alter table t rename column a to `b`, add c int not null, drop d, drop key e")[::3]
    ({'a': 'b'}, frozenset({'d'}))
    >>> altered_columns("alter table t add c varchar(9) default 'it''s', change x y int")[1][0].older
    "it's"
    """
    renamed: dict[str, str] = {}
    added: list[ColumnSchema] = []
    doubted: frozenset[str] | None = frozenset()
    dropped = set[str]()
    for clause in clauses(text):
        before = len(added)
        if found := _CHANGE.match(clause) or _RENAME.match(clause):
            former, new = _plain(found[1]), _plain(found[2])
            if former != new:
                renamed[former] = new
        elif found := _DROP.match(clause):
            dropped.add(_plain(found[1]).casefold())
        elif found := _ADD.match(clause):
            definition = clause[found.end() :].strip()
            inside = definition.startswith("(")
            for each in _split(definition[1:-1] if inside else definition):
                column = _COLUMN.match(each.strip())
                if column and not _NO_COLUMN.match(each.strip()):
                    added.append(_added(_plain(column[1]), column[2], each.strip()[column.end() :]))
        if doubted is not None and not _SAFE.match(clause):
            named = _named(clause, [] if _CHECK.search(clause) else [column.name for column in added[before:]])
            doubted = None if named is None else doubted | named
    return ColumnAlteration(renamed, tuple(added), doubted, frozenset(dropped))


def _named(clause: str, added: Iterable[str]) -> frozenset[str] | None:
    """Rule 4: the names in a clause, without columns that it makes; None if any column may be another one.

    >>> sorted(_named("modify `doc` longtext", [])), sorted(_named("add u uuid after doc", ["u"]))
    (['doc', 'longtext', 'modify'], ['add', 'uuid'])
    """
    if not _OF_COLUMNS.match(clause):
        return None
    names = {_plain(found).casefold() for found in re.findall(_PART, _AFTER.sub("", clause))}
    return frozenset(names - {name.casefold() for name in added})


def clauses(text: str) -> Iterator[str]:
    """The first one begins with ALTER TABLE and the table's name, which go."""
    name = rf"ALTER\s+(?:ONLINE\s+|IGNORE\s+)*TABLE\s*(?:IF\s+EXISTS\s*)?{_PART}(?:\s*\.\s*{_PART})?\s*"
    head = re.match(name + r"(?:(?:NO)?WAIT\b\s*\d*\s*)?", text, re.IGNORECASE)
    return (clause.strip() for clause in _split(text[head.end() if head else 0 :].rstrip("; \n")))


def _split(text: str) -> Iterator[str]:
    """At the commas that stand in no brackets and no quotes."""
    depth, clause = 0, ""
    for token in _TOKEN.findall(text):
        depth += (token == "(") - (token == ")")
        if token == "," and not depth:
            yield clause
            clause = ""
        else:
            clause += token
    yield clause


def _added(name: str, kind: str, rest: str) -> ColumnSchema:
    """Rule 2."""
    rest = _bare(rest)
    nullable, older, known = _NOT_NULL.search(rest) is None, None, True
    if found := _DEFAULT.search(rest):
        _, text, number, word = found.groups()
        older = number if text is None else unescaped(text)
        if word and word.upper() != "NULL":
            older = str(int(word.upper() == "TRUE"))
        if older is not None:
            older = _shown(kind, older)
            known = older is not None
    elif _COMPUTED.search(f"{kind} {rest}"):
        known = False
    elif not nullable:
        older = _shown(kind, "0") if _ZERO.match(kind) else ""
        known = older is not None and bool(_ZERO.match(kind) or _EMPTY.match(kind))
    return ColumnSchema(name, kind.lower(), nullable, older=older if known else None, older_known=known)


def _bare(rest: str) -> str:
    """What stands behind a column's type, without texts, names and brackets but its DEFAULT's: they may say anything.

    >>> _bare("comment 'default 5' default ('it') check (c is not null) after `default`")
    "comment '' default ('it') check () after ``"
    """
    made, depth = "", 0
    for token in _TOKEN.findall(rest):
        depth -= token == ")"
        if _OF_DEFAULT.search(made):
            made += token
        elif not depth:
            made += token[0] * 2 if token[0] in "`'\"" else token
        depth += token == "("
    return made


def _shown(kind: str, literal: str) -> str | None:
    """Rule 3.

    >>> _shown("decimal(9,2)", "7"), _shown("int unsigned", "+7"), _shown("datetime", "2024-01-02")
    ('7.00', '7', None)
    """
    if kind.lower().startswith("enum"):  # the label, however the statement writes it
        return literal if f"'{literal}'" in kind else None
    kind = kind.lower()
    try:
        if _INTEGER.match(kind):
            return str(int(literal))
        if found := _DECIMAL.match(kind):
            text = f"{Decimal(literal):.{found[1] or 0}f}"
            return text if Decimal(text) == Decimal(literal) else None
        if kind.startswith(("double", "real")) and "(" not in kind:
            return repr(float(literal))
    except (ValueError, ArithmeticError):
        return None
    if kind.startswith("date") and not kind.startswith("datetime"):
        return literal if re.fullmatch(r"\d{4}-\d\d-\d\d", literal) else None
    return literal if _EMPTY.match(kind) else None


def unescaped(text: str) -> str:
    """What stands between the quotes of a text in SQL.

    >>> unescaped(r"it''s a\\\\b")
    "it's a\\\\b"
    """
    return re.sub(
        r"''|\\(.)", lambda found: _ESCAPED.get(found[1], found[1]) if found[1] else "'", text, flags=re.DOTALL
    )


def _plain(name: str) -> str:
    return name[1:-1].replace(name[0] * 2, name[0]) if name[:1] in ("`", '"') else name
