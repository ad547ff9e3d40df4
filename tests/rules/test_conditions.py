"""The language of conditions, sentence by sentence, and at random: a dumb evaluator says what must come out."""

import math
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waterclock.rules.conditions import DEEPEST, LONGEST, condition
from waterclock.rules.truth import Unfit

OTHERS = (date(2026, 1, 31), b"", b"x", [], [None], {}, {"a": None}, (), timedelta(0), object())


def holds(text: str, **row: Any) -> bool:
    return condition(text).holds(row)


# ---------------------------------------------------------------- what it says


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("a > 100", 101, True),
        ("a > 100", 100, False),
        ("a >= 100", 100, True),
        ("0 < a <= 100", 100, True),
        ("0 < a <= 100", 0, False),
        ("a == -5", -5, True),
        ("a != 5", 6, True),
        ("a in (1, 2)", 2, True),
        ("a in [1, 2]", 3, False),
        ("a not in (1, 2)", 3, True),
        ("a == 'x'", "x", True),
        ("a in ('DE', \"FR\")", "FR", True),
        ("a", True, True),
        ("not a", False, True),
        ("a == True", True, True),
        ('column("a") > 1', 2, True),
        # nulls: unknown is neither true nor false
        ("a > 100", None, False),
        ("not a > 100", None, False),
        ("a != 5", None, False),
        ("a in (1, 2)", None, False),
        ("a not in (1, 2)", None, False),
        ("a", None, False),
        ("not a", None, False),
        ("a is None", None, True),
        ("a is not None", None, False),
        ("a is None or a > 5", None, True),
        ("a > 5 or True", None, True),
        ("not (a > 5 and False)", None, True),
        # numbers by their value, whatever their size
        ("a == 0.1", 0.1, True),
        ("a == 0.1", Decimal("0.1"), True),
        ("a == 0.1", Decimal("0.10"), True),
        ("a == 0.1", Decimal("0.1000000000000000000001"), False),
        ("a > 9223372036854775807", 2**63, True),
        ("a < 9223372036854775808", 2**63 - 1, True),
        ("a == 9007199254740993", 9007199254740992, False),
        ("a == 9007199254740993", 9007199254740992.0, True),  # as doubles
        ("a == 1", Decimal("1.00"), True),
        ("a < 1e308", 10**400, False),
        ("a > 1e308", float("inf"), True),
        ("a == 1_000.5", 1000.5, True),
        # NaN is taken as null
        ("a != 5", float("nan"), False),
        ("a is None", float("nan"), True),
        ("a is None", Decimal("NaN"), True),
        ("a == 0", -0.0, True),
        # texts by code point
        ("a < 'a'", "Z", True),
        ("a > 'z'", "é", True),
        ("a > '\\ue000'", "\U0001f600", True),
        ("a == 'a\u0308'", "\u00e4", False),
        ("a == ''", "", True),
        # times
        ("a >= '2026-01-31T12:00:00Z'", datetime(2026, 1, 31, 12), True),
        ("a >= '2026-01-31T12:00:00Z'", datetime(2026, 1, 31, 11, 59, tzinfo=UTC), False),
        ("'2026-01-31T13:00:00+01:00' == a", datetime(2026, 1, 31, 12), True),
        ("a == '2026-01-31'", datetime(2026, 1, 31), True),
        # dates
        ("a >= '2026-01-31'", date(2026, 1, 31), True),
        ("'2026-01-31' > a", date(2026, 1, 31), False),
        ("a in ('0001-01-01', '9999-12-31')", date(9999, 12, 31), True),
        ("a != '2026-01-31'", None, False),
        # whatever it is, it may be null
        *((f"a is {word}None", value, bool(word)) for word in ("", "not ") for value in OTHERS),
    ],
)
def test_what_a_condition_says_of_a_value(text: str, value: Any, expected: bool) -> None:
    assert holds(text, a=value) is expected


def test_columns_are_compared_with_columns() -> None:
    assert holds("paid < owed", paid=5, owed=Decimal("5.01"))
    assert holds("seen > due", seen=datetime(2026, 1, 2), due=datetime(2026, 1, 1))
    assert holds("seen > due", seen=date(2026, 1, 2), due=date(2026, 1, 1))
    assert holds("a < b and b < c and c == c and a != b", a=b"", b=b"\x00\xff", c=bytearray(b"\x01"))
    assert condition("paid < owed and column('a b') is None and paid > 1").columns == ("paid", "owed", "a b")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = 5", "invalid syntax"),
        ("a <> 5", "invalid syntax"),
        ("a > 5 AND b", "invalid syntax"),
        ("", "invalid syntax"),
        ("a > 5; b", "invalid syntax"),
        ("a == null", "write None"),
        ("a == NULL", "write None"),
        ("a == true", "write True"),
        ("a == None", "nothing is equal to None: write `is None`"),
        ("a in (1, None)", "nothing is equal to None: write `is None`"),
        ("a is 5", "`is` asks for None only"),
        ("5 is None", "only a column can be None"),
        ("a in 'abc'", "`in` needs values in brackets"),
        ("a in ()", "`in` needs values in brackets"),
        ("a in (b, 1)", "b is neither"),
        ("1 < 2", "it names no column"),
        ("a + 1 > 5", "a \\+ 1 is neither a column nor a value"),
        ("-a > 5", "a is neither a column nor a value"),
        ("a.real > 5", "a.real is neither"),
        ("a[0] > 5", "is neither"),
        ("len(a) > 5", "is neither"),
        ("__import__('os').system('x')", "is neither"),
        ("column(a) > 5", 'column\\("any name"\\)'),
        ("column('a', 'b') > 5", 'column\\("any name"\\)'),
        ("a == b'x'", "is neither"),
        ("a == f'{b}'", "is neither"),
        ("a == 1j", "is neither"),
        ("a == ...", "is neither"),
        ("a if b else c", "is neither"),
        ("(a := 5)", "is neither"),
        ("a > 1e400", "a double cannot hold 1e400"),
        ("a > 1e-400", "a double cannot hold 1e-400"),
        ("a > " + "9" * 4900, ""),
        ("ﬁ > 1", 'write column\\("ﬁ"\\)'),
        ("a == '\\d'", "invalid escape"),
        ("a\0 > 1", "null bytes"),
        ("(" * 300 + "a" + ")" * 300, "nested"),
        ("not " * (DEEPEST + 1) + "a", "it is nested too deeply"),
        ("a" * (LONGEST + 1), "up to 5000 characters"),
    ],
)
def test_what_is_no_condition_is_refused_with_what_one_looks_like(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=rf"(?s){said}.*it must read like \"amount > 100 and"):
        condition(text)


@pytest.mark.parametrize(
    ("text", "value", "said"),
    [
        ("a > 5", "6", r"the condition 'a > 5' compares the column 'a' \(a text\) with 5 \(a number\)"),
        ("a > '5'", 6, "compares the column 'a' .a number. with '5' .a text."),
        ("a == 1", True, "a boolean"),
        ("a == True", 1, "a boolean"),
        ("a in ('x', 'y')", 1, "a number"),
        ("a > True", True, "asks whether the column 'a' is smaller or larger"),
        ("a", 1, "takes the column 'a' for a boolean, and it is a number"),
        ("a or b == 2", "x", "takes the column 'a' for a boolean, and it is a text"),
        ("a > 'soon'", datetime(2026, 1, 1), "compares a time with 'soon', which is none"),
        ("a > 5", datetime(2026, 1, 1), "a time"),
        (
            "a > '2026-01-01T00:00:00.0000001'",
            datetime(2026, 1, 1),
            "a text that needs a time no finer than a microsecond",
        ),
        ("a == 1", [1], r"cannot look at a value such as \[1\]"),
        ("a", {"b": 1}, r"cannot look at a value such as \{'b': 1\}"),
        ("a == 'x'", b"x", r"compares the column 'a' \(a binary\) with 'x' \(a text\)"),
        (
            "a > '2026-01-31T12:00:00Z'",
            date(2026, 1, 31),
            "compares a date with '2026-01-31T12:00:00Z', which is none",
        ),
        ("a > 5", date(2026, 1, 31), r"compares the column 'a' \(a date\) with 5 \(a number\)"),
        ("a < c", date(2026, 1, 31), r"compares the column 'a' \(a date\) with the column 'c' \(a time\)"),
    ],
)
def test_values_that_do_not_fit_are_told_with_the_column(text: str, value: Any, said: str) -> None:
    with pytest.raises(Unfit, match=said):
        holds(text, a=value, b=2, c=datetime(2026, 1, 31))


def test_what_does_not_fit_is_told_before_any_row_where_the_kinds_of_columns_are_known() -> None:
    kinds: Any = {"n": "number", "s": "text", "b": "boolean", "t": "time", "d": "date", "x": "binary", "other": None}
    condition("other is None or d > '2026-01-31' and d == d and x < x and x is not None").check(kinds)
    for text in ("n > 5 and s == 'x' and b and t > '2026-01-01' and s is not None", "not b or n in (1, 0.5)", "b != b"):
        condition(text).check(kinds)
    for text in (
        "n > 's'",
        "s == 5",
        "b > b",
        "n",
        "s or b",
        "t > 5",
        "t == s",
        "t > 'soon'",
        "other == other",
        "other",
        "other == 'x'",
        "d > 5",
        "d == t",
        "d == s",
        "d > '2026-01-31T00:00:00Z'",
        "x == s",
        "x == 'x'",
        "x",
        "b == 1",
    ):
        with pytest.raises(Unfit, match="the condition"):
            condition(text).check(kinds)


# ---------------------------------------------------------------- at random

COLUMNS = {
    "i": st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3) | st.sampled_from([2**53, 2**53 + 1, 2**63 - 1]),
    "d": st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**9), max_value=10**9)
    | st.sampled_from([Decimal("0.1000"), Decimal("1.0000"), Decimal(2**53 + 1)]),
    "f": st.floats() | st.sampled_from([0.1, 1.0, 2.0**53, -0.0]),
    "s": st.text(max_size=3) | st.sampled_from(["a", "Z", "\U0001f600", "\ue000"]),
    "b": st.booleans(),
}
KINDS = {"i": "number", "d": "number", "f": "number", "s": "text", "b": "boolean"}
LITERALS = {
    "number": st.integers(-(2**70), 2**70)
    | st.integers(-3, 3)
    | st.sampled_from([Decimal("0.1"), Decimal("1.0"), Decimal("-2.5"), 2**53 + 1, 2**63]),
    "text": st.text(max_size=3) | st.sampled_from(["a", "Z"]),
    "boolean": st.booleans(),
}
OPERATORS = ("==", "!=", "<", "<=", ">", ">=")
rows = st.fixed_dictionaries({name: st.none() | values for name, values in COLUMNS.items()})


@st.composite
def comparisons(draw: st.DrawFn) -> Any:
    name = draw(st.sampled_from(sorted(COLUMNS)))
    kind = KINDS[name]
    if draw(st.integers(0, 5)) == 0:
        return ("null", name)
    others = st.sampled_from([other for other in sorted(KINDS) if KINDS[other] == kind]).map(
        lambda other: ("column", other)
    )
    literals = LITERALS[kind].map(lambda value: ("value", value))
    if draw(st.integers(0, 4)) == 0:
        return ("in", name, draw(st.lists(literals, min_size=1, max_size=3)))
    allowed = OPERATORS[:2] if kind == "boolean" else OPERATORS
    return ("compare", draw(st.sampled_from(allowed)), ("column", name), draw(others | literals))


expressions = st.recursive(
    comparisons() | st.just(("flag", "b")),
    lambda inner: (
        st.tuples(st.just("not"), inner)
        | st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3))
    ),
    max_leaves=5,
)


def written(tree: Any) -> str:
    match tree:
        case ("value", Decimal() as value):
            return f"{value:f}"
        case ("value", value):
            return repr(value)
        case ("column", name) | ("flag", name):
            return str(name)
        case ("null", name):
            return f"{name} is None"
        case ("in", name, values):
            return f"{name} in [{', '.join(map(written, values))}]"
        case ("compare", how, left, right):
            return f"{written(left)} {how} {written(right)}"
        case ("not", inner):
            return f"not ({written(inner)})"
        case (how, parts):
            return f" {how} ".join(f"({written(part)})" for part in parts)
    raise AssertionError(tree)


def said(tree: Any, row: dict[str, Any]) -> bool | None:
    """True, False or None for unknown, the slow way."""
    match tree:
        case ("null", name):
            return value_of(("column", name), row) is None
        case ("flag", name):
            return row[name]  # type: ignore[no-any-return]
        case ("in", name, values):
            return said(("or", [("compare", "==", ("column", name), value) for value in values]), row)
        case ("compare", how, left, right):
            return compared(how, value_of(left, row), value_of(right, row))
        case ("not", inner):
            found = said(inner, row)
            return None if found is None else not found
        case ("and", parts):
            found = {said(part, row) for part in parts}
            return False if False in found else None if None in found else True
        case ("or", parts):
            found = {said(part, row) for part in parts}
            return True if True in found else None if None in found else False
    raise AssertionError(tree)


def value_of(tree: Any, row: dict[str, Any]) -> Any:
    value = tree[1] if tree[0] == "value" else row[tree[1]]
    return None if isinstance(value, float) and math.isnan(value) else value


def compared(how: str, left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    if isinstance(left, str):
        left, right = [ord(c) for c in left], [ord(c) for c in right]
    elif isinstance(left, float) or isinstance(right, float):
        left, right = float(left), float(right)
    else:
        left, right = Fraction(left), Fraction(right)
    sign = (left > right) - (left < right)
    return {"==": sign == 0, "!=": sign != 0, "<": sign < 0, "<=": sign <= 0, ">": sign > 0, ">=": sign >= 0}[how]


@settings(max_examples=200, deadline=None)
@given(expressions, rows)
def test_a_condition_at_random_says_what_the_dumb_evaluator_says(tree: Any, row: dict[str, Any]) -> None:
    found = condition(written(tree))
    found.check(KINDS)  # type: ignore[arg-type]
    assert found.holds(row) is (said(tree, row) is True)
    assert condition(f"not ({written(tree)})").holds(row) is (said(tree, row) is False)


@settings(max_examples=200, deadline=None)
@given(
    st.text(max_size=30)
    | st.lists(st.sampled_from(["a", ">", "(", ")", "'", "not ", " in ", "1", ".", "e9"])).map("".join)
)
def test_any_text_is_a_condition_or_a_sentence(text: str) -> None:
    with suppress(ValueError):  # and nothing else
        assert condition(text).columns
