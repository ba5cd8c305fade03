"""A rank that trains: it takes a batch, is busy for 20 ms, takes the next one. argv: way, corpus, size, steps.

Tells the seconds from the start of the process to the first batch, and how long each later batch was waited for.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from data_peers import Rank, way
from told import since_begin, tell

BUSY = 0.02
name, folder, size, steps = sys.argv[1:]
part = way(name)(Rank(Path(folder), 0, int(size)))
next(part.batches)
start, waits = since_begin(), []
for _ in range(int(steps)):
    time.sleep(BUSY)  # as a loop that waits for its accelerator
    begin = time.perf_counter()
    next(part.batches)
    waits.append(time.perf_counter() - begin)
os.environ["RANK"] = "0"
tell(start=start, waits=waits)
os._exit(0)  # closing a part takes seconds with some peers
