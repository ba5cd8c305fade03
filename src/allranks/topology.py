"""Which rank is on which host: arithmetic only, no detection."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Topology:
    """Ranks are numbered host by host; ``ranks_per_host[h]`` is how many host h has. Empty hosts are refused."""

    ranks_per_host: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.ranks_per_host or min(self.ranks_per_host) < 1:
            raise ValueError(f"every host needs at least one rank, got {self.ranks_per_host}")

    @classmethod
    def of(cls, size: int, ranks_per_host: int) -> Topology:
        """Return ``size`` ranks on as few hosts as hold them, the last one perhaps not full."""
        if size < 1 or ranks_per_host < 1:
            raise ValueError(f"{size} ranks, {ranks_per_host} a host: both must be at least 1")
        full, rest = divmod(size, ranks_per_host)
        return cls((ranks_per_host,) * full + ((rest,) if rest else ()))

    @property
    def size(self) -> int:
        """The number of ranks."""
        return sum(self.ranks_per_host)

    def host_of(self, rank: int) -> int:
        """Return the number of the rank's host."""
        return self._place(rank)[0]

    def local_rank_of(self, rank: int) -> int:
        """Return the rank's number on its host."""
        return self._place(rank)[1]

    def _place(self, rank: int) -> tuple[int, int]:
        left = rank
        for host, ranks in enumerate(self.ranks_per_host):
            if 0 <= left < ranks:
                return host, left
            left -= ranks
        raise ValueError(f"there is no rank {rank} among 0-{self.size - 1}")
