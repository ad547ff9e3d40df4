"""Conditions on the columns of an event, such as `amount > 100 and country in ("DE", "FR")`: one meaning everywhere.

They are read by Python's own parser, and nothing is ever run as Python. Of its grammar there is this:

    a == b, !=, <, <=, >, >=    values of one kind; chains too: 0 < amount <= 100
    a in ("DE", "FR"), not in   the same as a == "DE" or a == "FR"
    a is None, a is not None    whether a value is null, of whatever type
    and, or, not, ( )           a boolean column stands for itself
    amount, column("any name")  columns; 5, -0.5, "text", True: the only other values there are

Rule 1: truth has three values, as in SQL: what is compared with null is unknown, and a condition holds if it is true.
        What compares how stands in truth.py.
Rule 2: rows in process and rows on Spark are judged by this very code, value by value.
"""

from __future__ import annotations

import ast
import math
import operator
import unicodedata
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any

from waterclock.rules.truth import (
    BooleanValue,
    Column,
    Comparison,
    IsNull,
    Kinds,
    Node,
    Not,
    Operand,
    Row,
    Several,
    Unfit,
    Value,
)

LONGEST, DEEPEST = 5_000, 50  # characters of a condition, and how deep `and`, `or` and `not` may nest
_LOOKS_LIKE = (
    """it must read like "amount > 100 and country in ('DE', 'FR')", with == for equal and `is None` for null"""
)
_OPERATORS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_OF_SQL = {"null": "None", "none": "None", "true": "True", "false": "False"}


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition that was read; `columns` are those it names."""

    text: str
    columns: tuple[str, ...]
    _root: Node

    def holds(self, row: Row) -> bool:
        """True if the condition is true of `row`, which has all its columns; Unfit if its values cannot be compared."""
        try:
            return self._root.truth(row) is True
        except Unfit as error:
            raise Unfit(f"the condition {self.text!r} {error}") from None

    def check(self, kinds: Kinds) -> None:
        """Unfit if values of these kinds cannot be compared as the condition says."""
        try:
            self._root.check(kinds)
        except Unfit as error:
            raise Unfit(f"the condition {self.text!r} {error}") from None


@cache
def condition(text: str) -> Condition:
    """Read a condition; ValueError says what is wrong with it."""
    if not isinstance(text, str) or len(text) > LONGEST:
        raise ValueError(f"a condition is a text of up to {LONGEST} characters; {_LOOKS_LIKE}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # such as a backslash that means nothing
            tree = ast.parse(text.strip(), mode="eval")
        reader = _ConditionReader(text.strip())
        root = reader.truth(tree.body)
    except (SyntaxError, RecursionError, MemoryError, Warning) as error:
        why = getattr(error, "msg", None) or "it is nested too deeply"
        raise ValueError(f"{text!r} is no condition ({why}): {_LOOKS_LIKE}") from None
    except ValueError as error:
        raise ValueError(f"{text!r} is no condition ({error}): {_LOOKS_LIKE}") from None
    if not reader.columns:
        raise ValueError(f"{text!r} is no condition (it names no column): {_LOOKS_LIKE}")
    return Condition(text, tuple(reader.columns), root)


# Reading -------------------------------------------------------------------------------------------------------


class _ConditionReader:
    """From Python's tree to ours; ValueError for what is not in the table above."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.columns: dict[str, None] = {}

    def truth(self, node: ast.expr, depth: int = 0) -> Node:
        if depth > DEEPEST:
            raise RecursionError
        if isinstance(node, ast.BoolOp):
            return Several(isinstance(node.op, ast.Or), [self.truth(part, depth + 1) for part in node.values])
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return Not(self.truth(node.operand, depth + 1))
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            links = [self._link(*link) for link in zip(sides, node.ops, sides[1:], strict=False)]
            return links[0] if len(links) == 1 else Several(False, links)
        return BooleanValue(self._operand(node))

    def _link(self, left: ast.expr, how: ast.cmpop, right: ast.expr) -> Node:
        if isinstance(how, ast.Is | ast.IsNot):
            if not isinstance(right, ast.Constant) or right.value is not None:
                raise ValueError(f"`is` asks for None only, not for {self._said(right)}")
            found = IsNull(self._column(left))
            return Not(found) if isinstance(how, ast.IsNot) else found
        if isinstance(how, ast.In | ast.NotIn):
            if not isinstance(right, ast.Tuple | ast.List) or not right.elts:
                raise ValueError(f"`in` needs values in brackets, such as ('DE', 'FR'), not {self._said(right)}")
            operand = self._operand(left)
            among = Several(True, [Comparison(operand, operator.eq, self._value(each)) for each in right.elts])
            return Not(among) if isinstance(how, ast.NotIn) else among
        return Comparison(self._operand(left), _OPERATORS[type(how)], self._operand(right))

    def _column(self, node: ast.expr) -> Column:
        operand = self._operand(node)
        if not isinstance(operand, Column):
            raise ValueError(f"only a column can be None, not {self._said(node)}")
        return operand

    def _operand(self, node: ast.expr) -> Operand:
        if isinstance(node, ast.Name):
            return self._named(self._name(node))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "column":
            match node:
                case ast.Call(args=[ast.Constant(value=str(name))], keywords=[]):
                    return self._named(name)
            raise ValueError(f'a column is named as column("any name"), not as {self._said(node)}')
        return self._value(node)

    def _named(self, name: str) -> Column:
        self.columns[name] = None
        return Column(name)

    def _name(self, node: ast.Name) -> str:
        written = self._said(node)
        if node.id.lower() in _OF_SQL:
            raise ValueError(f'write {_OF_SQL[node.id.lower()]}, or column("{written}") if that is a column')
        if unicodedata.normalize("NFKC", written) != written:  # Python would look for another name
            raise ValueError(f'write column("{written}")')
        return written

    def _value(self, node: ast.expr) -> Value:
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            number = self._value(node.operand).literal
            if not isinstance(number, bool) and isinstance(number, int | Decimal):
                return Value(-number)
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bool | int):
            return Value(node.value)
        if isinstance(node, ast.Constant) and isinstance(node.value, float):
            return Value(self._decimal(node.value, self._said(node)))
        if isinstance(node, ast.Constant) and node.value is None:
            raise ValueError("nothing is equal to None: write `is None`")
        raise ValueError(f"{self._said(node)} is neither a column nor a value")

    def _decimal(self, nearest: float, written: str) -> Decimal:
        """A number as it is written: beside a double it is taken as one, beside others it is exact."""
        exact = Decimal(written)
        if math.isinf(nearest) or (nearest == 0) != (exact == 0):
            raise ValueError(f"a double cannot hold {written}")
        return exact

    def _said(self, node: ast.expr) -> str:
        return ast.get_source_segment(self._text, node) or ast.dump(node)
