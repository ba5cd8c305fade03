"""All ranks of several worlds read an epoch, one after the other. argv: way, corpus, documents, worlds, elastic.

``worlds`` are their sizes, as 4,3. Tells for each of them the ranks' fewest and most steps, the documents read twice
and lost, and what part of their global batches, as sets, all worlds have in common. With ``elastic`` as 4-3, ranks of
the first world stop in the middle, and those of the second go on, each with the state of the rank of its number.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from data_peers import BATCH, Opened, Rank, way
from told import tell

name, folder, number, worlds, elastic = sys.argv[1:]
documents = int(number)
Batches = list[Sequence[int]]
parts: list[Opened] = []  # closing one takes seconds with some peers: nobody waits for that


def global_batch(size: int) -> int:
    """The multiple of the size that is nearest to 96."""
    return max(round(BATCH / size), 1) * size


def opened(rank: int, size: int, state: Any = None) -> Opened:
    parts.append(way(name)(Rank(Path(folder), rank, size, state, global_batch(size))))
    return parts[-1]


def taken(part: Opened, most: int | None = None) -> Batches:
    return [part.ids(batch) for batch in islice(part.batches, most)]


def counted(ranks: Sequence[Batches]) -> dict[str, int]:
    """How often the documents were read: too often, and not at all."""
    ids = [np.asarray(batch, np.int64) for batches in ranks for batch in batches]
    times = np.bincount(np.concatenate(ids), minlength=documents)
    return {"twice": int(np.maximum(times - 1, 0).sum()), "lost": int((times == 0).sum())}


def global_batches(ranks: Sequence[Batches]) -> Iterator[int]:
    for step in range(min(map(len, ranks))):
        yield hash(tuple(sorted(document for batches in ranks for document in batches[step])))


def whole(size: int) -> dict[str, Any]:
    ranks = [taken(opened(rank, size)) for rank in range(size)]
    steps = [len(batches) for batches in ranks]
    sets = list(global_batches(ranks)) if BATCH % size == 0 else []
    return {"steps": [min(steps), max(steps)], "batches": sets, **counted(ranks)}


def resumed(size: int, then: int) -> dict[str, Any]:
    """What becomes of the documents when one world begins the epoch and another ends it."""
    middle = documents // BATCH // 2
    begun, states = [], []
    for rank in range(size):
        part = opened(rank, size)
        if part.state is None:
            return {"failed": "no state to save"}
        begun.append(taken(part, middle))
        states.append(part.state())
    try:
        ended = [taken(opened(rank, then, states[rank])) for rank in range(then)]
    except Exception as error:  # whatever a peer raises is what the table shows
        return {"failed": f"{type(error).__name__}: {error}"[:80]}
    steps = [len(batches) for batches in ended]
    return {
        "steps": [min(steps), max(steps)],
        "state": len(json.dumps(states[0], default=repr)),
        **counted(begun + ended),
    }


def shared(one: Sequence[int], other: Sequence[int]) -> float:
    """The share of global batches that two worlds have in common."""
    return len(set(one) & set(other)) / max(len(one), len(other), 1)


found = {size: whole(size) for size in map(int, worlds.split(","))}
sets = [batches for world in found.values() if (batches := world.pop("batches"))]
same = min(shared(sets[0], other) for other in sets)
after = resumed(*map(int, elastic.split("-"))) if elastic else {}
os.environ["RANK"] = "0"  # peers are told other ranks there
tell(worlds=found, same=same, elastic=after)
os._exit(0)
