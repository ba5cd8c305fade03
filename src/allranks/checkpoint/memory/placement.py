"""Decide which host keeps a copy of which rank's part, and which copies a restore reads. Pure.

Hosts are in the order of their first ranks. Each rank's part is kept by its own host, and a copy by the next host. So
the loss of any one host leaves a copy of every part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from allranks.checkpoint import paths


@dataclass(frozen=True, slots=True)
class Choice:
    """The hosts with an intact copy of each file (``holders``), the files without one (``missing``), and ``notes`` on
    faults.
    """

    holders: Mapping[str, tuple[str, ...]]
    missing: tuple[str, ...]
    notes: tuple[str, ...]


def ranks_of(host: str, hosts: Sequence[str]) -> tuple[int, ...]:
    """Return the ranks of a host; ``hosts`` has the host of every rank."""
    return tuple(rank for rank, other in enumerate(hosts) if other == host)


def is_first(rank: int, hosts: Sequence[str]) -> bool:
    """Return whether a rank is the first of its host."""
    return hosts.index(hosts[rank]) == rank


def neighbour(host: str, hosts: Sequence[str]) -> str | None:
    """Return the host that keeps copies of this host's parts; None if there is no other host."""
    names = list(dict.fromkeys(hosts))
    after = names[(names.index(host) + 1) % len(names)]
    return None if after == host else after


def server(rank: int, host: str, hosts: Sequence[str]) -> int:
    """Return the rank of ``host`` that serves its memory to ``rank``: the clients are distributed over all ranks
    there.
    """
    there = ranks_of(host, hosts)
    return there[ranks_of(hosts[rank], hosts).index(rank) % len(there)]


def share(files: Iterable[str], rank: int, hosts: Sequence[str]) -> tuple[str, ...]:
    """Return which of a host's files ``rank`` verifies: every rank of the host has a share."""
    mine = ranks_of(hosts[rank], hosts)
    return tuple(sorted(files)[mine.index(rank) :: len(mine)])


def choose(
    files: Iterable[str], intact: Mapping[str, Iterable[str]], faults: Mapping[str, Mapping[str, str]]
) -> Choice:
    """Return what to read of a step: ``intact`` has the undamaged files by host, ``faults`` the faults of the
    others.
    """
    by_host = {host: {*names} for host, names in intact.items()}
    notes = [f"host {host} has no file of the step" for host in by_host if not by_host[host] and not faults.get(host)]
    holders = {name: tuple(host for host, names in by_host.items() if name in names) for name in files}
    notes += [
        f"the part of {_owner_text(name)} in the memory of host {host} is damaged: {what}"
        for host, named in faults.items()
        for name, what in sorted(named.items())
    ]
    return Choice(holders, tuple(name for name, there in holders.items() if not there), tuple(notes))


def _owner_text(name: str) -> str:
    said = paths.shard_file_of(name)
    return name if said is None else f"rank {said.rank}"


def describe_loss(choice: Choice, hosts: Sequence[str]) -> str:
    """Return the reason why a step cannot be restored from memory."""
    whose = ", ".join(map(_owner_text, choice.missing))
    return "; ".join(
        [f"no host ({', '.join(dict.fromkeys(hosts))}) has an intact copy of the part of {whose}", *choice.notes]
    )
