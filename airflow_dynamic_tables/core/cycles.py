"""Cycles in dependency graphs, and topological order."""

from __future__ import annotations

import graphlib
from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

_Node = TypeVar("_Node")


def circle_in(needs: Mapping[_Node, Collection[_Node]]) -> list[_Node]:
    """One cycle, in which each node needs the next one and the last one needs the first; empty when there is none."""
    try:
        graphlib.TopologicalSorter(needs).prepare()
    except graphlib.CycleError as error:
        # graphlib lists each node after the one it needs, and repeats the first one at the end.
        return list(reversed(error.args[1][1:]))
    return []


def without_circles(needs: Mapping[_Node, Collection[_Node]]) -> set[_Node]:
    """The nodes that do not depend on a cycle; all dependencies must be keys, too."""
    left = {node: set(needed) for node, needed in needs.items()}
    needing: dict[_Node, list[_Node]] = {}
    for node, needed in needs.items():
        for name in needed:
            needing.setdefault(name, []).append(node)
    ready = [node for node, needed in left.items() if not needed]
    done: set[_Node] = set()
    while ready:
        node = ready.pop()
        done.add(node)
        for waiting in needing.get(node, ()):
            left[waiting].discard(node)
            if not left[waiting]:
                ready.append(waiting)
    return done


def needed_first(needs: Mapping[_Node, Iterable[_Node]]) -> list[_Node]:
    """All keys, each after its dependencies; iterative, and a cycle is cut at the node where it is detected."""
    done: dict[_Node, None] = {}
    seen: set[_Node] = set()
    for first in needs:
        stack = [] if first in seen else [(first, iter(needs[first]))]
        seen.add(first)
        while stack:
            node, waiting = stack[-1]
            needed = next((each for each in waiting if each not in seen), None)
            if needed is None:
                stack.pop()
                done[node] = None
            else:
                seen.add(needed)
                stack.append((needed, iter(needs[needed])))
    return list(done)
