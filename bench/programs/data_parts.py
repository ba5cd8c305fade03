"""What the parts of our own reading cost, without any reading. argv: part, words. Parts are the functions below."""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from ckpt_limits import forget_peak, resident
from numpy.typing import NDArray
from told import tell

from allranks.data.gaps import find_gaps
from allranks.data.index import DatasetIndex, SourceFile
from allranks.data.ledger import Ledger, sums_of_batches
from allranks.data.pack import PackingOptions, make_packer
from allranks.data.plan import EpochPlan, IndexLayout, choose_layout, rows_of_rank
from allranks.data.sources.detect import open_source

Ids = NDArray[np.int64]
SIZES = 10_000  # ranks
SUMMED = (1 << 13) // 24  # batches in a chunk of the loader
LENGTH, PUSHED = 2_048, 512


def _index(samples: int, blocks: int) -> DatasetIndex:
    """An index of one file whose blocks have nearly the same length."""
    ends = np.arange(blocks + 1, dtype=np.int64) * samples // blocks
    zero = np.zeros(blocks, np.int64)
    file, skip = zero.astype(np.int32), zero.astype(np.int32)
    whole = (SourceFile("corpus", samples * 256, ""),)
    return DatasetIndex(
        "jsonl", whole, file, ends[:-1] * 256, ends[1:] * 256, skip, np.diff(ends), zero.astype(np.uint64)
    )


def plan(samples: int, blocks: int) -> dict[str, Any]:
    """Seconds and memory to plan an epoch, up to its first ids; and for one rank of 10,000 to know its first rows."""
    index = _index(samples, blocks)
    how = choose_layout(index, global_batch=SIZES, seed=0, shuffle=True)
    index.first_ids  # noqa: B018 - of the index, not of the plan
    base, begin = forget_peak(), time.perf_counter()
    planned = EpochPlan(index, how, 0)
    planned.window_at(0, 0)
    seconds, memory = time.perf_counter() - begin, resident("VmHWM") - base
    begin = time.perf_counter()
    ids = planned.row_ids(rows_of_rank(SIZES - 1, SIZES, SIZES), planned.steps * 4 // 5, planned.steps * 4 // 5 + 1)
    return {"seconds": seconds, "memory": memory, "rank": time.perf_counter() - begin, "rows": ids.size}


def ledger(documents: int, faults: int) -> dict[str, Any]:
    """What the ledger costs a sample, in batches of 24, of which the loader adds up SUMMED at once.

    And how many injected faults it finds, each in its own step.
    """
    index = _index(documents, 4_000)
    planned = EpochPlan(index, IndexLayout(96, 96, 32, 0, True), 0)
    rows = rows_of_rank(0, 4, 96)
    ids = planned.row_ids(rows, 0, planned.steps)
    noted, begin = Ledger(planned.steps, rows), time.perf_counter()
    for first in range(0, planned.steps, SUMMED):
        some = ids[first : first + SUMMED]
        for step, count, mixed in zip(itertools.count(first), *sums_of_batches(some), strict=False):
            noted.record_batch(step, count, mixed, 0, ids[step])
    seconds = time.perf_counter() - begin
    noise, found, wrong = np.random.default_rng(0), 0, 0
    begin, rounds = time.perf_counter(), 10
    for _ in range(rounds):
        at = noise.choice(planned.steps - 1, faults // rounds, replace=False)
        told = [(gap.begin, gap.end) for gap in find_gaps(planned, _damaged(planned, ids, at, noise), 0)]
        injected = {(step, step + 1) for step in at.tolist()}
        found += len(injected & set(told))
        wrong += len(set(told) - injected)
    return {
        "seconds": seconds,
        "samples": int((ids >= 0).sum()),
        "found": found,
        "wrong": wrong,
        "faults": faults // rounds * rounds,
        "search": (time.perf_counter() - begin) / rounds,
    }


def _damaged(planned: EpochPlan, ids: Ids, at: Ids, noise: np.random.Generator) -> Ledger:
    """The ledger of a rank to which something happened in some of its steps."""
    taken = ids.copy()
    for step, kind in zip(at.tolist(), noise.integers(4, size=len(at)).tolist(), strict=True):
        row = int(noise.integers(ids.shape[1]))
        if kind == 0:
            taken[step, row] = -1  # lost
        elif kind == 1:
            taken[step, row] = taken[step, row - 1]  # one lost, one taken twice
        elif kind == 2:
            taken[step, row] = (taken[step, row] + 1) % planned.samples  # another one
        else:
            taken[step] = ids[step + 1]  # the next batch
    noted = Ledger(planned.steps, rows_of_rank(0, 4, 96))
    for step, (count, mixed) in enumerate(zip(*sums_of_batches(taken), strict=True)):
        noted.record_batch(step, count, mixed)
    return noted


def index(folder: str) -> dict[str, Any]:
    """Seconds, by the clock and of the processor, to index the jsonl files of a corpus that are in the page cache."""
    with tempfile.TemporaryDirectory() as cache:
        files = open_source("jsonl", f"{folder}/jsonl/*.jsonl", cache=cache)
        begin, cpu = time.perf_counter(), time.process_time()
        made = files.index()
        seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    return {"seconds": seconds, "cpu": cpu, "nbytes": made.nbytes, "index": len(made.encode())}


def packing(tokens: int, method: str) -> dict[str, Any]:
    """Seconds to pack documents of 62 tokens in the mean to rows of 2,048, and the share that is padding."""
    noise = np.random.default_rng(0)
    lengths = np.minimum(noise.geometric(1 / 62, tokens // 62), LENGTH)
    ends = np.cumsum(lengths)
    documents = np.split(noise.integers(1, 50_000, ends[-1], dtype=np.int32), ends[:-1])
    made, rows, padding = make_packer(PackingOptions(LENGTH, method)), 0, 0  # type: ignore[arg-type]
    begin = time.perf_counter()
    for at in range(0, len(documents), PUSHED):
        some = documents[at : at + PUSHED]
        packed = made.push_documents(range(at, at + len(some)), range(at, at + len(some)), some)
        rows += len(packed)
        padding += sum(row.padding for row in packed)
    seconds = time.perf_counter() - begin
    return {"seconds": seconds, "tokens": rows * LENGTH - padding, "padding": padding / (rows * LENGTH)}


PARTS: dict[str, Callable[..., dict[str, Any]]] = {
    "plan": lambda samples, blocks: plan(int(samples), int(blocks)),
    "ledger": lambda documents, faults: ledger(int(documents), int(faults)),
    "index": index,
    "packing": lambda tokens, method: packing(int(tokens), method),
}

if __name__ == "__main__":
    part, *words = sys.argv[1:]
    os.environ["RANK"] = "0"
    tell(**PARTS[part](*words))
