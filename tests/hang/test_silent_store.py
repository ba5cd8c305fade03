"""A store that does not answer, because rank 0 is stopped or cut off: one rank of each machine reports it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace

import pytest

from allranks.hang.watch import Watch, WatchSettings
from allranks.launch.hang_limits import HangLimits
from allranks.world.base import World
from allranks.world.simulated import SimulatedWorld


class Listener:
    """The processes of this machine, and nothing else."""

    def __init__(self, near: Mapping[int, int]) -> None:
        self.near = near


@pytest.mark.parametrize(
    ("rank", "near", "reports"),
    [
        (2, (), True),  # one rank a host: nobody else can see it
        (1, (0, 2), True),
        (2, (0, 1), False),
        (3, (2,), False),
        (2, (3,), True),
    ],
)
def test_the_first_rank_of_each_machine_reports_it(
    rank: int, near: tuple[int, ...], reports: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    def check(world: World) -> None:
        if world.rank == rank:
            watch = Watch(world, Listener(dict.fromkeys(near, os.getpid())), WatchSettings(HangLimits(5.0), "warn"))  # type: ignore[arg-type]
            watch._heartbeat, watch._asked = replace(watch._heartbeat, still=6.0), time.monotonic() - 6.0
            watch._check_store()

    SimulatedWorld(4).run(check)
    told = capfd.readouterr().err
    assert ("HANG: rank 0 (host" in told) == reports, told
