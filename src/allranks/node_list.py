"""Read Slurm's short form of a list of hosts."""

from __future__ import annotations

import re

_PART = re.compile(r"((?:[^,\[]|\[[^\]]*\])+),?")
_BRACKET = re.compile(r"\[([^\]]*)\]")


def hosts_of_node_list(nodes: str) -> tuple[str, ...]:
    """Return the hosts of a Slurm node list, in order.

    >>> hosts_of_node_list("gpu[003-005,9],login1")
    ('gpu003', 'gpu004', 'gpu005', 'gpu9', 'login1')
    """
    return tuple(host for part in _PART.findall(nodes) for host in _expand(part))


def _expand(part: str) -> list[str]:
    found = _BRACKET.search(part)
    if found is None:
        return [part]
    head, tail = part[: found.start()], _expand(part[found.end() :])
    return [f"{head}{number}{rest}" for span in found[1].split(",") for number in _numbers(span) for rest in tail]


def _numbers(span: str) -> list[str]:
    first, dash, last = span.partition("-")
    if not dash:
        return [first]
    return [f"{number:0{len(first)}}" for number in range(int(first), int(last) + 1)]
