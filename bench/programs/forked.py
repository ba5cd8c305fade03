"""Ranks with torchrun's variables, forked from one process that has done their imports: for many short jobs.

argv: N, the modules to import (a,b,c), script, words. In the end prints ENDED and how each rank did.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import sys

size, modules = int(sys.argv[1]), sys.argv[2].split(",")
os.environ.setdefault("OMP_NUM_THREADS", "1")
for module in modules:
    importlib.import_module(module)
pids: list[int] = []
while len(pids) < size and (not pids or pids[-1]):
    pids.append(os.fork())
if pids[-1]:
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    print(f"ENDED {json.dumps(codes)}", flush=True)
    sys.exit(any(codes))
rank = str(len(pids) - 1)
os.environ.update(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=str(size))
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ["BENCH_PORT"])
sys.argv = sys.argv[3:]
runpy.run_path(sys.argv[0], run_name="__main__")
