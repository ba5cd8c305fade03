"""How well an order is shuffled, by its first 1 %: all ranks of a world of 4. argv: way, corpus, documents.

Tells the share of 1,000 equal parts of the corpus that it touches, and the share of documents of a global batch whose
next one, by number, is at most 32 away; and the same of a uniform order.
"""

from __future__ import annotations

import os
import sys
from itertools import islice
from pathlib import Path

import numpy as np
from data_peers import BATCH, SEED, Rank, way
from numpy.typing import NDArray
from told import tell

BINS, NEAR, SIZE = 1_000, 32, 4
name, folder, number = sys.argv[1:]
documents = int(number)
steps = documents // 100 // BATCH
Steps = NDArray[np.int64]  # (steps, rows)


def touched(batches: Steps) -> float:
    return len(np.unique(batches.ravel() * BINS // documents)) / BINS


def neighbours(batches: Steps) -> float:
    return float((np.diff(np.sort(batches, axis=1), axis=1) <= NEAR).mean())


ranks = []
parts = []  # closing one takes seconds with some peers: nobody waits for that
for rank in range(SIZE):
    parts.append(way(name)(Rank(Path(folder), rank, SIZE)))
    ranks.append(np.array([parts[-1].ids(batch) for batch in islice(parts[-1].batches, steps)]))
found = np.concatenate(ranks, axis=1)
uniform = np.random.default_rng(SEED).permutation(documents)[: steps * BATCH].reshape(steps, BATCH)
os.environ["RANK"] = "0"
tell(
    touched=touched(found),
    neighbours=neighbours(found),
    uniform_touched=touched(uniform),
    uniform_neighbours=neighbours(uniform),
)
os._exit(0)
