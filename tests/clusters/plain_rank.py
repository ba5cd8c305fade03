"""One rank of a job without a framework: says who it is, and then does what it is told."""

from __future__ import annotations

import os
import signal
import sys
import threading

rank, what, victim = int(os.environ["RANK"]), sys.argv[1], int(sys.argv[2])
restart = int(os.environ["ALLRANKS_RESTART"])
size, local, local_size, host = (
    os.environ[name] for name in ("WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")
)
print(f"rank {rank} of {size}, {local} of {local_size} on host {host}, start {restart}", flush=True)
if what == "restart" and restart == 1:
    what = "end"
if what == "end":
    sys.exit()
if rank == victim:
    if what in ("raise", "restart"):
        raise ValueError("bad row")
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "exit":
        os._exit(7)
print(f"rank {rank} is up", flush=True)
threading.Event().wait(600)  # until the launcher ends it
