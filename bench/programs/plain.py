"""The least that a launcher can be: start N ranks with torchrun's variables, wait for them. argv: N, script, words."""

from __future__ import annotations

import os
import subprocess
import sys

size = int(sys.argv[1])
common = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": os.environ["BENCH_PORT"]}
ranks = [
    subprocess.Popen(
        [sys.executable, *sys.argv[2:]],
        env={"OMP_NUM_THREADS": "1", **os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
    )
    for rank in range(size)
]
sys.exit(max(rank.wait() for rank in ranks))
