"""Compute which rank is on which host. This module only computes; it detects nothing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Topology:
    """The ranks of each host. Ranks are numbered host by host; ``ranks_per_host[h]`` is the number of ranks of host h.

    Raises ValueError for a host without ranks.
    """

    ranks_per_host: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.ranks_per_host or min(self.ranks_per_host) < 1:
            raise ValueError(f"every host needs at least one rank, got {self.ranks_per_host}")

    @classmethod
    def of(cls, size: int, ranks_per_host: int) -> Topology:
        """Return a topology of ``size`` ranks on as few hosts as possible. The last host may have fewer ranks."""
        if size < 1 or ranks_per_host < 1:
            raise ValueError(f"{size} ranks, {ranks_per_host} a host: both must be at least 1")
        full, rest = divmod(size, ranks_per_host)
        return cls((ranks_per_host,) * full + ((rest,) if rest else ()))

    @property
    def size(self) -> int:
        """The number of ranks on all hosts."""
        return sum(self.ranks_per_host)

    def host_of(self, rank: int) -> int:
        """Return the number of the host that a rank is on. Raises ValueError if there is no such rank."""
        return self._place(rank)[0]

    def local_rank_of(self, rank: int) -> int:
        """Return a rank's number among the ranks of its host. Raises ValueError if there is no such rank."""
        return self._place(rank)[1]

    def _place(self, rank: int) -> tuple[int, int]:
        left = rank
        for host, ranks in enumerate(self.ranks_per_host):
            if 0 <= left < ranks:
                return host, left
            left -= ranks
        raise ValueError(f"there is no rank {rank} among 0-{self.size - 1}")
