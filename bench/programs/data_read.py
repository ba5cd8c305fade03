"""Rank 0 of a world reads its part for a while. argv: way, corpus, small corpus, options as JSON.

Options: ``size`` of the world, ``documents`` of the corpus, ``seconds`` to read at most, ``resume`` (a file with a
state); or ``keep``, a file for the state at 80 % of the epoch, and no more. Tells the samples read and the seconds and
bytes for that, memory beyond what the process had before, and seconds to the first batch: of the first start, and of a
fresh one and a resumed one after that. A batch of the small corpus is read before, so that no figure holds imports.
"""

from __future__ import annotations

import ctypes
import gc
import json
import math
import os
import pickle
import sys
import time
from pathlib import Path
from typing import Any

from ckpt_limits import bytes_read, forget_peak, resident
from data_peers import BATCH, COUNTERS, Opened, Rank, way
from told import tell

KEPT = 0.8  # of the epoch
LOOK, QUIET = 0.1, 0.002  # seconds; of the processor, in that time
name, folder, small, words = sys.argv[1:]
options = json.loads(words)
rows = BATCH // options["size"]
steps = -(-options["documents"] // BATCH)
parts: list[Opened] = []  # closing one takes seconds with some peers: nobody waits for that


def opened(state: Any = None, at: str = folder) -> Opened:
    parts.append(way(name)(Rank(Path(at), 0, options["size"], state)))
    return parts[-1]


def settled() -> None:
    """Wait until nothing works in the background for those that were opened before."""
    busy = math.inf
    while busy > QUIET:
        before = time.process_time()
        time.sleep(LOOK)
        busy = time.process_time() - before


def first(state: Any = None, at: str = folder) -> float:
    """Seconds to the first batch."""
    settled()
    begin = time.perf_counter()
    part = opened(state, at)
    next(part.batches)
    return time.perf_counter() - begin


def read() -> dict[str, float]:
    """Read until the time is over or the part is."""
    before, begin = bytes_read(), time.perf_counter()
    part = opened()
    batch = next(part.batches)
    start, taken = time.perf_counter(), 1
    while time.perf_counter() - start < options["seconds"]:
        following = next(part.batches, None)
        if following is None:
            break
        batch, taken = following, taken + 1
    seconds = time.perf_counter() - start
    samples = (taken - 1) * rows + len(part.ids(batch))
    return {"first": start - begin, "samples": samples, "seconds": seconds, "read": bytes_read() - before}


def state_inside() -> Any:
    """The state at 80 % of the epoch: read up to there, but where it is a counter, and the way is a slow one."""
    part, wanted = opened(), int(KEPT * steps)
    if part.state is None:
        return None
    next(part.batches)
    if name in COUNTERS:
        return {**part.state(), COUNTERS[name]: wanted * BATCH}
    for _ in range(wanted - 1):
        next(part.batches)
    return part.state()


def kept(path: Path) -> None:
    state = state_inside()
    if state is not None:
        path.write_bytes(pickle.dumps(state))
    tell(state=0 if state is None else len(json.dumps(state, default=repr)))


def measured() -> None:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    base = forget_peak()
    figures = read()
    figures["memory"] = resident("VmHWM") - base
    figures["fresh"] = first()
    if (resume := Path(options.get("resume", "/"))).is_file():
        figures["resumed"] = first(pickle.loads(resume.read_bytes()))
    tell(**figures)


first(at=small)
os.environ["RANK"] = "0"  # for tell; peers are told other ranks there
if "keep" in options:
    kept(Path(options["keep"]))
else:
    measured()
os._exit(0)
