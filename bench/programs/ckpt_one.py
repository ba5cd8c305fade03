"""One process saves a state twice and restores it cold and warm, beside the raw limits. argv: way, framework, state.

Tells seconds of the first and the second save (until the call returned; until all was durable), of the restores, of the
limits right before each, and the memory beyond what the process had before.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from pathlib import Path

from ckpt_limits import Limits, copying, evict, files_under, forget_peak, make_durable, resident
from ckpt_methods import method
from ckpt_state import State, to_numpy
from told import tell

name, framework, kind = sys.argv[1:]
os.environ.setdefault("RANK", "0")
home = Path(os.environ["BENCH_OUT"], "run")
home.mkdir()
state, way = State(kind), method(name, framework)
tree = way.hold(state)
limits = Limits(home.parent / "raw", state.nbytes)
figures: dict[str, list[float]] = {"raw": [], "blocking": [], "durable": [], "copy 1": [], "copy 2": []}

gc.collect()
base, peak = resident(), 0
for step in (1, 2):
    figures["raw"].append(limits.write())
    os.sync()
    forget_peak()
    begin = time.perf_counter()
    wait = way.save(home, step, tree)
    figures["blocking"].append(time.perf_counter() - begin)
    wait()
    if not way.durable:
        make_durable(home)
    figures["durable"].append(time.perf_counter() - begin)
    peak = max(peak, resident("VmHWM"))
memory = {"save": peak - base, "kept": resident() - base}

for threads in (1, 2) if way.behind else ():
    flat = [array.reshape(-1).view("u1") for group in to_numpy(tree).values() for array in group.values()]
    figures[f"copy {threads}"].append(copying(flat, threads))

raw_cold, raw_warm = limits.read_cold(), limits.read_warm()
restores, evictable = {}, files_under(home)
for kind in ("cold", "warm"):
    if way.in_place:
        state.wipe()
    if kind == "cold":
        evict(evictable)
    gc.collect()
    base, begin = forget_peak(), time.perf_counter()
    restored = way.restore(home, 2, tree)
    if not way.in_place:
        for array in (array for group in to_numpy(restored).values() for array in group.values()):
            array.reshape(-1).view("u1")[::4096].max()  # a lazy way has read nothing yet
    restores[kind] = time.perf_counter() - begin
    memory[f"restore {kind}"] = resident("VmHWM") - base
    state.check(to_numpy(restored))
    del restored
way.close()
tell(**figures, restores=restores, raw_cold=raw_cold, raw_warm=raw_warm, memory=memory, nbytes=state.nbytes)
