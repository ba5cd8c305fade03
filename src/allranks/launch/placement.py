"""Describe which ranks run on which host of a job."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class Placement:
    """The ranks of a job, host by host: the first host has the lowest ranks.

    ``hosts`` are the host names; ``counts`` are the numbers of ranks, in the same order. ``host`` is the number of this
    host.
    """

    hosts: tuple[str, ...]
    counts: tuple[int, ...]
    host: int = 0

    def to_text(self) -> str:
        """Return hosts and counts as one word, for an environment variable: ``h0*8,h1*8``."""
        return ",".join(f"{name}*{count}" for name, count in zip(self.hosts, self.counts, strict=True))

    @classmethod
    def from_text(cls, text: str, *, host: int) -> Placement:
        """Return the placement that ``to_text`` has written."""
        pairs = [one.rpartition("*") for one in text.split(",")]
        return cls(tuple(name for name, _, _ in pairs), tuple(int(count) for _, _, count in pairs), host)

    @property
    def size(self) -> int:
        """The number of ranks of the job."""
        return sum(self.counts)

    @property
    def name(self) -> str:
        """The name of host ``host``."""
        return self.hosts[self.host]

    @property
    def ranks(self) -> range:
        """The ranks of host ``host``."""
        return self.ranks_on(self.host)

    def ranks_on(self, host: int) -> range:
        """Return the ranks of the host with this number."""
        first = sum(self.counts[:host])
        return range(first, first + self.counts[host])

    def host_of(self, rank: int) -> int:
        """Return the number of the host of a rank."""
        return bisect_right(list(accumulate(self.counts)), rank)

    def by_host(self, ranks: Iterable[int]) -> dict[int, tuple[int, ...]]:
        """Return these ranks in ascending order, by the number of their host. Hosts without any are left out."""
        found: dict[int, list[int]] = {}
        for rank in sorted(ranks):
            found.setdefault(self.host_of(rank), []).append(rank)
        return {host: tuple(them) for host, them in found.items()}
