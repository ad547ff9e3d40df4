"""A power cut: what was not flushed is undone, and a part of it done again.

    nothing     what was not flushed is gone
    all         everything had reached the disk
    prefix      as a journal does: the first so many of all operations of the disk, the last of them torn
    any         any of the operations, in their order, each write torn at a sector: what POSIX allows
    files       all that was done to a file and to its name, or nothing of it: the system writes back file by file

Rule 1: a write that is torn leaves some of its sectors, or its front; its length may be there without its bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random
from typing import Final, NamedTuple

from waterclock.simulation.nodes import SECTOR, File, Names, Node, Op, Resize, Write, set_name, set_size

MODES: Final = ("nothing", "all", "prefix", "prefix", "any", "any", "files", "files")
SHARES: Final = (0.2, 0.5, 0.8, 0.95)


class PowerCut(NamedTuple):
    """What became of the operations that were not flushed."""

    mode: str
    kept: int
    lost: int


def power_cut(nodes: Iterable[Node], rng: Random, mode: str | None = None) -> PowerCut:
    """Undo what is pending in these, and do a part of it again."""
    mode = mode or rng.choice(MODES)
    ops: dict[int, tuple[Node, Op]] = {}
    for node in nodes:
        for op in node.pending:
            ops.setdefault(op.number, (node, op))
    order = sorted(ops)
    for number in reversed(order):
        _undo(*ops[number])
    kept = _files_kept(ops, order, rng) if mode == "files" else _kept(order, mode, rng)
    for number in kept:
        torn = (mode == "any" and rng.random() < 0.3) or (mode == "prefix" and number == kept[-1])
        _redo(*ops[number], rng if torn else None)
    return PowerCut(mode, len(kept), len(order) - len(kept))


def _kept(order: list[int], mode: str, rng: Random) -> list[int]:
    if mode in ("all", "nothing"):
        return order if mode == "all" else []
    if mode == "prefix":
        return order[: rng.randrange(len(order) + 1)]
    share = rng.choice(SHARES)
    return [number for number in order if rng.random() < share]


def _files_kept(ops: Mapping[int, tuple[Node, Op]], order: list[int], rng: Random) -> list[int]:
    kept: dict[int, bool] = {}
    share, found = rng.choice(SHARES), []
    for number in order:
        node, op = ops[number]
        named = next((after or before for _, _, before, after in op.changes), None) if isinstance(op, Names) else None
        file = (named or node).number
        if file not in kept:
            kept[file] = rng.random() < share
        if kept[file]:
            found.append(number)
    return found


def _undo(node: Node, op: Op) -> None:
    if isinstance(op, Names):
        for folder, name, before, _ in reversed(op.changes):
            set_name(folder, name, before)
        return
    assert isinstance(node, File)
    if isinstance(op, Write):
        node.data[op.at : op.at + len(op.old)] = op.old
    else:
        del node.data[min(op.size, op.at) :]
        node.data.extend(op.old)
    set_size(node.data, op.size)


def _redo(node: Node, op: Op, torn: Random | None) -> None:
    if isinstance(op, Names):
        for folder, name, _, after in op.changes:
            set_name(folder, name, after)
        return
    assert isinstance(node, File)
    if isinstance(op, Resize):
        set_size(node.data, op.at)
        return
    pieces = [(op.at, op.data)] if torn is None else _torn(op, torn)
    end = max((at + len(data) for at, data in pieces), default=0)
    if torn is not None and torn.random() < 0.5:
        end = max(end, op.at + len(op.data))  # the length is there, the bytes are not
    if end > len(node.data):
        set_size(node.data, end)
    for at, data in pieces:
        node.data[at : at + len(data)] = data


def _torn(write: Write, rng: Random) -> list[tuple[int, bytes]]:
    """Some of its sectors."""
    pieces, (at, data) = [], (write.at, write.data)
    here, end = at, at + len(data)
    way = rng.choice(("front", "any"))
    cut = at + rng.randrange(len(data) + 1)
    while here < end and not (way == "front" and here >= cut):
        following = min(end, (here // SECTOR + 1) * SECTOR)
        if way == "front":
            following = min(following, cut)
        if way == "front" or rng.random() < 0.5:
            pieces.append((here, data[here - at : following - at]))
        here = following
    return pieces
