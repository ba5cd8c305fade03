"""A generator that is seeded anew before it draws: by what all processes are given, or by what each has for itself."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

STREAM = """\
import random
import time
import torch.distributed as dist


class Stream:
    def __init__(self, files):
        self.rng = random.Random()
        self.files = files

    def set_epoch(self, seed):
        SEEDING
        self.rng.shuffle(self.files)
        self.mine = self.files[dist.get_rank() :: dist.get_world_size()]


Stream([]).set_epoch(1)
"""


@pytest.mark.parametrize(
    ("seeding", "found"),
    [
        ("self.rng.seed(seed)", 0),
        ("self.rng.seed(time.time())", 1),
        ("self.other.seed(seed)", 1),
        ("pass", 1),
    ],
)
def test_what_it_is_seeded_with_before_it_draws(seeding: str, found: int) -> None:
    source = STREAM.replace("SEEDING", seeding).encode()
    codes = [finding.code for finding in check({"stream.py": source}, Settings()).findings]
    assert codes.count("AR308") == found
