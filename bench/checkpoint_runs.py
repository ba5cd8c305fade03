"""What the checkpoint benches share: the ways, how a job of one is run, and what the peers reach."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass

from bench.measure import PROGRAMS, Ran, run
from bench.runs import Runs, Told

LIMIT = 180.0


@dataclass(frozen=True, slots=True)
class Way:
    """A way to save: its row in the table, its name in programs/ckpt_methods.py, who made it."""

    label: str
    name: str
    framework: str
    family: str


OURS, DCP, ORBAX, OTHERS = "allranks", "DCP", "Orbax", "others"
BLOCKING = Way("allranks", "ours", "torch", OURS)
BLOCKING_JAX = Way("allranks, JAX arrays", "ours", "jax", OURS)
ASYNC = Way("allranks, async", "ours-async", "torch", OURS)
ASYNC_JAX = Way("allranks, async, JAX arrays", "ours-async", "jax", OURS)
NO_DIGESTS = Way("allranks without digests", "ours-no-digests", "torch", OURS)
DCP_SAVE = Way("DCP", "dcp", "torch", DCP)
DCP_THREADS = Way("DCP, 2 threads", "dcp-2-threads", "torch", DCP)
DCP_ASYNC = Way("DCP, async", "dcp-async", "torch", DCP)
TORCH_SAVE = Way("torch.save", "torch.save", "torch", OTHERS)
SAFETENSORS_TORCH = Way("safetensors.torch", "safetensors.torch", "torch", OTHERS)
SAFETENSORS_NUMPY = Way("safetensors.numpy", "safetensors.numpy", "numpy", OTHERS)
SNAPSHOT = Way("torchsnapshot, async", "torchsnapshot-async", "torch", OTHERS)
ORBAX_DEFAULT = Way("Orbax", "orbax", "jax", ORBAX)
ORBAX_PLAIN = Way("Orbax, no zstd", "orbax-no-zstd", "jax", ORBAX)
ORBAX_FILES = Way("Orbax, no OCDBT, no zstd", "orbax-no-ocdbt-no-zstd", "jax", ORBAX)
ORBAXES = (ORBAX_PLAIN, ORBAX_FILES)  # its best settings
NOT_QUICKLY = {DCP_THREADS, SAFETENSORS_TORCH, ORBAX_DEFAULT, ORBAX_FILES}


Results = Mapping[Way, Runs]


def tried(ways: Sequence[Way], *, quick: bool) -> list[Way]:
    """The ways to run, all of them or the few that show whether the bench works."""
    return [way for way in ways if not quick or way not in NOT_QUICKLY]


def alone(program: str, kind: str) -> Callable[[Way], Ran]:
    """A job of one process."""
    script = PROGRAMS / program
    return lambda way: run([sys.executable, script, way.name, way.framework, kind], limit=LIMIT)


def best(results: Results, families: Container[str], figure: Callable[[Told], float]) -> float:
    """The least median among the ways of these families; nan where none succeeded."""
    found = [runs.median(figure) for way, runs in results.items() if way.family in families]
    return min((value for value in found if not math.isnan(value)), default=math.nan)


def peers(results: Results, figure: Callable[[Told], float], show: Callable[[float], str]) -> str:
    """What the other ways reach, in their best setting."""
    found = {family: best(results, [family], figure) for family in (DCP, ORBAX)}
    others = {way.label: runs.median(figure) for way, runs in results.items() if way.family == OTHERS}
    return ", ".join(f"{name} {show(value)}" for name, value in (found | others).items() if not math.isnan(value))
