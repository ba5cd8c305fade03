"""Decide which host keeps a copy of which rank's part, and which copies a restore reads.

Hosts are in the order of their first ranks. Each rank's part is kept by its own host, and a copy by the next host. So a
copy of every part is left if any one host is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from allranks.checkpoint import paths


@dataclass(frozen=True, slots=True)
class CopyChoice:
    """The copies that a restore can read.

    ``holders``: the hosts with an intact copy of each file. ``missing``: the files without one. ``notes``: texts on
    faults.
    """

    holders: Mapping[str, tuple[str, ...]]
    missing: tuple[str, ...]
    notes: tuple[str, ...]


def ranks_of(host: str, hosts: Sequence[str]) -> tuple[int, ...]:
    """Return the ranks on a host. ``hosts``: the host of every rank."""
    return tuple(rank for rank, other in enumerate(hosts) if other == host)


def is_first(rank: int, hosts: Sequence[str]) -> bool:
    """Return whether a rank is the first rank on its host. ``hosts``: the host of every rank."""
    return hosts.index(hosts[rank]) == rank


def neighbour_host(host: str, hosts: Sequence[str]) -> str | None:
    """Return the host that keeps copies of this host's parts; None if there is no other host."""
    names = list(dict.fromkeys(hosts))
    after = names[(names.index(host) + 1) % len(names)]
    return None if after == host else after


def serving_rank(rank: int, host: str, hosts: Sequence[str]) -> int:
    """Return the rank of ``host`` that serves its memory to ``rank``. The clients are divided among its ranks."""
    there = ranks_of(host, hosts)
    return there[ranks_of(hosts[rank], hosts).index(rank) % len(there)]


def files_to_verify(files: Iterable[str], rank: int, hosts: Sequence[str]) -> tuple[str, ...]:
    """Return the files of a host that ``rank`` must verify. The files are divided among the host's ranks."""
    mine = ranks_of(hosts[rank], hosts)
    return tuple(sorted(files)[mine.index(rank) :: len(mine)])


def choose_copies(
    files: Iterable[str], intact: Mapping[str, Iterable[str]], faults: Mapping[str, Mapping[str, str]]
) -> CopyChoice:
    """Return which copies of a step's files can be read.

    ``intact``: the undamaged files, by host. ``faults``: descriptions of the damaged files, by host and file.
    """
    by_host = {host: {*names} for host, names in intact.items()}
    notes = [f"host {host} has no file of the step" for host in by_host if not by_host[host] and not faults.get(host)]
    holders = {name: tuple(host for host, names in by_host.items() if name in names) for name in files}
    notes += [
        f"the part of {_owner_text(name)} in the memory of host {host} is damaged: {what}"
        for host, named in faults.items()
        for name, what in sorted(named.items())
    ]
    return CopyChoice(holders, tuple(name for name, there in holders.items() if not there), tuple(notes))


def _owner_text(name: str) -> str:
    said = paths.shard_file_of(name)
    return name if said is None else f"rank {said.rank}"


def describe_loss(choice: CopyChoice, hosts: Sequence[str]) -> str:
    """Return a text that says why a step cannot be restored from memory."""
    whose = ", ".join(map(_owner_text, choice.missing))
    return "; ".join(
        [f"no host ({', '.join(dict.fromkeys(hosts))}) has an intact copy of the part of {whose}", *choice.notes]
    )
