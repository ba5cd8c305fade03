"""How a rank of a bench meets the others, and tells its figures to the bench that started it."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any


def since_begin() -> float:
    """Seconds since the bench started the launcher."""
    return time.monotonic() - float(os.environ["BENCH_BEGIN"])


def tell(**figures: Any) -> None:
    """Leave this rank's figures for the bench."""
    rank = int(os.environ["RANK"])
    Path(os.environ["BENCH_OUT"], f"{rank:04}.json").write_text(json.dumps(figures))


def join_jax() -> None:
    """Initialise jax.distributed: with no argument under our launcher; others must be told where everybody is."""
    import jax

    if "ALLRANKS_RANK" in os.environ:
        jax.distributed.initialize()
    else:
        address = f"127.0.0.1:{os.environ['BENCH_PORT']}"
        jax.distributed.initialize(address, int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"]))


def proportional_bytes() -> int:
    """This process's memory, with pages that n processes share counted as 1/n (PSS)."""
    rollup = Path("/proc/self/smaps_rollup").read_text()
    return next(int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:"))


def suffer(what: str) -> None:
    """Let this rank fail, having told when."""
    tell(when=time.monotonic())
    if what == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "leaves":
        sys.exit(0)
    raise ValueError("the loss is nan")
