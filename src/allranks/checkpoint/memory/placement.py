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

    ``holders``: for each file, the hosts with an intact copy. ``missing``: the files of which no copy is intact.
    ``notes``: texts that describe damaged copies.
    """

    holders: Mapping[str, tuple[str, ...]]
    missing: tuple[str, ...]
    notes: tuple[str, ...]


def ranks_on_host(host: str, host_of_rank: Sequence[str]) -> tuple[int, ...]:
    """Return the ranks on a host. ``host_of_rank``: the host of every rank."""
    return tuple(rank for rank, other in enumerate(host_of_rank) if other == host)


def is_first_on_host(rank: int, host_of_rank: Sequence[str]) -> bool:
    """Return whether a rank is the first rank on its host. ``host_of_rank``: the host of every rank."""
    return host_of_rank.index(host_of_rank[rank]) == rank


def neighbour_host(host: str, host_of_rank: Sequence[str]) -> str | None:
    """Return the host that keeps copies of this host's parts; None if there is no other host."""
    names = list(dict.fromkeys(host_of_rank))
    after = names[(names.index(host) + 1) % len(names)]
    return None if after == host else after


def serving_rank(rank: int, host: str, host_of_rank: Sequence[str]) -> int:
    """Return the rank of ``host`` that serves its memory to ``rank``. The clients are divided among its ranks."""
    there = ranks_on_host(host, host_of_rank)
    return there[ranks_on_host(host_of_rank[rank], host_of_rank).index(rank) % len(there)]


def files_to_verify(files: Iterable[str], rank: int, host_of_rank: Sequence[str]) -> tuple[str, ...]:
    """Return the files of a host that ``rank`` must verify. The files are divided among the host's ranks."""
    mine = ranks_on_host(host_of_rank[rank], host_of_rank)
    return tuple(sorted(files)[mine.index(rank) :: len(mine)])


def choose_copies(
    files: Iterable[str], intact_files: Mapping[str, Iterable[str]], damaged_files: Mapping[str, Mapping[str, str]]
) -> CopyChoice:
    """Return which copies of a step's files can be read.

    ``intact_files``: the undamaged files, by host. ``damaged_files``: descriptions of the damaged files, by host and
    file.
    """
    by_host = {host: {*names} for host, names in intact_files.items()}
    notes = [
        f"host {host} has no file of the step" for host in by_host if not by_host[host] and not damaged_files.get(host)
    ]
    holders = {name: tuple(host for host, names in by_host.items() if name in names) for name in files}
    notes += [
        f"the part of {_owner_text(name)} in the memory of host {host} is damaged: {what}"
        for host, named in damaged_files.items()
        for name, what in sorted(named.items())
    ]
    return CopyChoice(holders, tuple(name for name, there in holders.items() if not there), tuple(notes))


def _owner_text(name: str) -> str:
    said = paths.parse_shard_file(name)
    return name if said is None else f"rank {said.rank}"


def describe_loss(copy_choice: CopyChoice, host_of_rank: Sequence[str]) -> str:
    """Return a text that says why a step cannot be restored from memory."""
    whose = ", ".join(map(_owner_text, copy_choice.missing))
    return "; ".join(
        [
            f"no host ({', '.join(dict.fromkeys(host_of_rank))}) has an intact copy of the part of {whose}",
            *copy_choice.notes,
        ]
    )
