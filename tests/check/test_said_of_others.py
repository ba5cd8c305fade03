"""What a condition, names in a row and a wait say of the other ranks."""

from __future__ import annotations

import pytest
from pairs import HEAD, Pair

from allranks.check.engine import Settings, check

NAMES = """
at, several = (int(os.environ[f'SLURM_{{name}}']) for name in ('PROCID', 'NTASKS'))
if {test}:
    open('log.txt', 'w')
"""
WAITS = """
import os
import time


def stats(path, store):
    if rank == 0:
        torch.save({{}}, path + '.part')
        os.replace(path + '.part', path)
        {sets}
    {waits}
    return torch.load(path)


stats('/shared/stats.pt', None)
"""
TWICE = """
def log(cfg, step):
    if cfg.sharded or cfg.replicated:
        if rank == 0:
            open('log.txt', 'a')
    else:
        open({other}, 'a')


log(load(), 1)
"""
PAIRS = {
    "both sides of a condition do the same, one of them on one rank": Pair(
        TWICE.format(other="'log.txt'"), TWICE.format(other="'other.txt'"), "AR102"
    ),
    "ranks under a few names": Pair(NAMES.format(test="at == 0"), NAMES.format(test="several > 1"), "AR102"),
    "a file that is waited for": Pair(
        WAITS.format(sets="pass", waits="while not os.path.exists(path):\n        time.sleep(1)"),
        WAITS.format(sets="pass", waits="time.sleep(1)"),
        "AR405",
    ),
    "a key of the store": Pair(
        WAITS.format(sets="store.set('stats', '1')", waits="store.wait(['stats'])"),
        WAITS.format(sets="store.set('stats', '1')", waits="store.num_keys()"),
        "AR405",
    ),
}


def _codes(text: str) -> list[str]:
    settings = Settings(select=("AR101", "AR102", "AR201", "AR405"))
    return [one.code for one in check({"train.py": (HEAD + text).encode()}, settings).findings]


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_who_the_others_are_is_understood(pair: Pair) -> None:
    assert (_codes(pair.good), _codes(pair.bad)) == ([], [pair.code])
