"""Wait for batches of 8 MB on the device, in steps of 20 ms. argv: jax or torch, batches ahead, steps.

Tells the seconds of every wait. With 0 ahead, the loop copies each batch by itself.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
from told import tell

import allranks

ROWS, BYTES, STEP = 32, 256 << 10, 0.02
framework, ahead, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


class Images:
    """Rows that are there already, so that only the copies are measured."""

    def __init__(self) -> None:
        self.one = np.zeros(BYTES, np.uint8)

    def __len__(self) -> int:
        return ROWS * (steps + 20)

    def __getitem__(self, row: int) -> Any:
        return {"x": self.one}


def batches() -> Any:
    loader = allranks.Dataset.sequence(Images(), compare=False).batch(ROWS).loader(rank=0, size=1)
    if framework == "torch":
        import torch

        return loader.to_torch("cuda" if torch.cuda.is_available() else "cpu", ahead=ahead)
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(jax.devices()[:1]), ("data",))
    return loader.to_jax(NamedSharding(mesh, PartitionSpec("data")), ahead=ahead)


waits = []
ready = iter(batches())
next(ready)
batch: Any = None
for _ in range(steps):
    time.sleep(STEP)
    batch = None  # to free 8 MB takes time that is no wait
    begin = time.perf_counter()
    batch = next(ready)
    waits.append(time.perf_counter() - begin)
tell(waits=waits)
