"""Define the runs of a rehearsal, and how each one differs from a quiet run.

Every random choice in a scenario comes from its seed, so that the same seed gives the same run again.
"""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from allranks.rehearse.fault import USUAL, Fault
from allranks.rehearse.watch.syscalls import CHANGES

Name: TypeAlias = Literal["quiet", "perturbed", "hosts", "resume", "faults", "worlds"]
NAMES: tuple[str, ...] = get_args(Name)
DEFAULT: tuple[Name, ...] = ("quiet", "perturbed", "hosts", "resume")

# How long one call waits, how many calls of one line wait, and how long all calls of a rank wait at most: seconds.
_DELAY, _CALLS, _MOST = 0.3, 4, 6.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """One run of a rehearsal. ``seed`` selects what is perturbed; it is 0 in a run without perturbation.

    ``start``: which start of the program this is, in a scenario that starts it several times; else 0.
    """

    name: Name
    seed: int = 0
    fault: Fault | None = None
    start: int = 0

    @property
    def title(self) -> str:
        start = f", start {self.start}" if self.start else ""
        if self.fault:
            return f"{self.name}, {self.fault}{start}"
        return f"{self.name}, seed {self.seed}{start}" if self.seed else f"{self.name}{start}"

    @property
    def seen(self) -> str:
        """Return the text that says in which run a finding was seen."""
        return f"seen in the rehearsal {self.title!r}"


def scenarios(names: Sequence[Name], *, seeds: int, first_seed: int, faults: Sequence[Fault] = USUAL) -> list[Scenario]:
    """Return the runs of a rehearsal, in order. The scenario ``faults`` has a run for each of ``faults``."""
    runs = []
    for name in names:
        if name == "perturbed":
            runs += [Scenario(name, first_seed + number) for number in range(seeds)]
        elif name == "faults":
            runs += [Scenario(name, fault=fault) for fault in faults]
        else:
            runs.append(Scenario(name))
    return runs


@dataclass(slots=True)
class Delays:
    """Which file calls wait, and how long. The seed decides; this is what a loaded file system or a slow host does.

    Successive seeds use three variants in turn. First, rank 0 is late with its changes. Second, all ranks are late, so
    that they check before any of them acts. Third, one other rank is late with all its file calls.
    """

    ranks: int
    seed: int
    late: int | None = None
    _calls: Counter[tuple[int, object]] = field(default_factory=Counter)
    _waited: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))

    def seconds(self, rank: int, operation: str, line: object) -> float:
        """Return how many seconds this call waits.

        ``line`` is where the call is made: only the first calls of a line wait.
        """
        self._calls[rank, line] += 1
        if self._calls[rank, line] > _CALLS or self._waited[rank] >= _MOST:
            return 0.0
        changes, turn = operation in CHANGES, self._turn
        if turn == 0:
            seconds = _DELAY if rank == 0 and changes else 0.0
        elif turn == 1:
            chance = _chance(f"{self.seed}/{rank}/{sum(self._calls.values())}")
            seconds = (0.3 + 0.7 * chance) * _DELAY if changes else 0.0
        else:
            seconds = _DELAY if rank == self._late else 0.0
        self._waited[rank] += seconds
        return seconds

    @property
    def description(self) -> str:
        """Return a text that says which calls were delayed."""
        turn = self._turn
        if turn == 0:
            return "with the file changes of rank 0 300 ms late"
        if turn == 1:
            return "with the file changes of all ranks 90 to 300 ms late, and sets in another order on each"
        return f"with the file calls of rank {self._late} 300 ms late"

    @property
    def has_rank_local_hashes(self) -> bool:
        """Whether each rank has its own seed of ``hash(str)``, so that each rank must start a new interpreter."""
        return self._turn == 1

    @property
    def _turn(self) -> int:
        return 2 if self.late is not None else (self.seed - 1) % 3

    @property
    def _late(self) -> int:
        if self.late is not None:
            return self.late
        return 1 + int(_chance(str(self.seed)) * (self.ranks - 1)) if self.ranks > 1 else 0


def _chance(key: str) -> float:
    """Return a number from 0 up to 1 (exclusive) that depends only on the key."""
    return zlib.crc32(key.encode()) / 2**32


Probe: TypeAlias = dict[str, Any]


def probe_settings(
    scenario: Scenario,
    *,
    steps: int,
    accelerator: str,
    hosts: int = 2,
    private: Sequence[str] = (),
    local: Sequence[str] = (),
) -> Probe:
    """Return the settings for the probe of each rank in a scenario."""
    settings: Probe = {"steps": steps, "accelerator": accelerator}
    if scenario.name == "perturbed":
        settings["seed"] = scenario.seed
    if scenario.name == "hosts":
        settings |= {"hosts": hosts, "private": list(private), "local": list(local)}
    return settings
