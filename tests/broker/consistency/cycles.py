"""Cycles of dependencies between committed transactions, after Adya and Elle.

    T1 -wr-> T2   T2 read what T1 wrote
    T1 -ww-> T2   T2's value stands directly behind T1's in one partition

    G1c   a cycle of wr alone: each has read of the next, through readers of committed records: a violation
    G0    a cycle of ww alone: transactions that write the same partitions at once interleave. Kafka promises nothing
          against it, neither do its transactions lock anything: counted, no violation
    mixed a cycle that needs ww and wr: allowed by the same reason, and counted

Rule 1: only committed transactions count; what is unknown counts where its values are there in the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from tests.broker.consistency.checker import Violation
from tests.broker.consistency.facts import Facts
from tests.broker.consistency.history import Op

Node = tuple[str, int]
Graph = dict[Node, set[Node]]


class Cycles(NamedTuple):
    """How many sets of transactions depend on each other, by what connects them."""

    g0: int
    mixed: int


def circular(facts: Facts) -> Iterator[Violation]:
    ops = {_node(op): op for op in facts.history.of("txn")}
    for one in components(read_edges(facts)):
        story = f"{len(one)} transactions have each read what another of them wrote"
        yield Violation("G1c", story, tuple(ops[node] for node in sorted(one)))


def allowed(facts: Facts) -> Cycles:
    """The cycles that Kafka allows."""
    wrote, read = write_edges(facts), read_edges(facts)
    both = {node: wrote.get(node, set()) | read.get(node, set()) for node in {*wrote, *read}}
    g0 = components(wrote)
    return Cycles(len(g0), len([one for one in components(both) if one not in g0]))


def read_edges(facts: Facts) -> Graph:
    graph: Graph = {}
    for op in facts.history.of("txn"):
        for *_, value in op.get("reads", ()):
            write = facts.writes.get(value)
            if write is not None and write.op.kind == "txn" and write.op is not op and _there(facts, op):
                graph.setdefault(_node(write.op), set()).add(_node(op))
    return graph


def write_edges(facts: Facts) -> Graph:
    graph: Graph = {}
    for log in facts.committed.values():
        writers = [facts.writes[value].op for _, value in log if value in facts.writes]
        for one, following in pairwise(writers):
            if one is not following and one.kind == following.kind == "txn":
                graph.setdefault(_node(one), set()).add(_node(following))
    return graph


def components(graph: Graph) -> list[set[Node]]:
    """The sets of more than one node that all reach each other (Kosaraju, without recursion)."""
    back: Graph = {}
    for node, following in graph.items():
        for one in following:
            back.setdefault(one, set()).add(node)
    seen: set[Node] = set()
    order = [node for root in graph for node in _finished(graph, root, seen)]
    taken: set[Node] = set()
    found = [set(_finished(back, root, taken)) for root in reversed(order)]
    return [one for one in found if len(one) > 1]


def _finished(graph: Graph, root: Node, seen: set[Node]) -> list[Node]:
    """The nodes that are reached from `root` and not seen yet, in the order in which they are left."""
    if root in seen:
        return []
    seen.add(root)
    path, left = [(root, iter(graph.get(root, ())))], []
    while path:
        node, ahead = path[-1]
        following = next((one for one in ahead if one not in seen), None)
        if following is None:
            left.append(node)
            path.pop()
        else:
            seen.add(following)
            path.append((following, iter(graph.get(following, ()))))
    return left


def _there(facts: Facts, op: Op) -> bool:
    return op.ok or any(value in facts.visible for *_, value in op["writes"])


def _node(op: Op) -> Node:
    return op.process, op.number
