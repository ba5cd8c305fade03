"""From the command to the first collective, by launcher; the stages on the way; the memory of a rank."""

from __future__ import annotations

import io
import os
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from allranks.launch.console import Console
from allranks.launch.engines import local
from allranks.launch.fork_server import ForkServer
from allranks.launch.job import Call, Job, Script
from bench.measure import PROGRAMS, Ran, allranks, in_turns, median, must, plain, read_told, run, torchrun
from bench.page import duration, table, times

JAX, TORCH = PROGRAMS / "first_jax.py", PROGRAMS / "first_torch.py"
# What a JAX script reads from the disk, apart from Python itself.
READ = ("jax", "jaxlib", "numpy", "numpy.libs", "ml_dtypes", "scipy", "scipy.libs", "opt_einsum")
FIRST = "the first collective is done"

Launcher = Callable[..., list[object]]
Way = Callable[[], Ran]


def ours(ranks: int, *words: object, devices: int | None = None) -> Way:
    return lambda: must(run(allranks(ranks, *words, devices=devices)))


def peer(launcher: Launcher, ranks: int, script: Path, *, devices: int = 1) -> Way:
    """A launcher that knows nothing of JAX: its devices are asked for in the environment."""
    return lambda: must(run(launcher(ranks, script), env={"JAX_NUM_CPU_DEVICES": str(devices)}))


def cold(way: Way) -> Way:
    """The same, with the files of JAX read from the disk, as after a reboot."""

    def emptied() -> Ran:
        for file in _files():
            descriptor = os.open(file, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
        return way()

    return emptied


def _files() -> Iterator[Path]:
    for name in READ:
        for file in Path(sysconfig.get_path("platlib"), name).rglob("*"):
            if file.is_file():
                yield file


def with_fork_server(ranks: int, *, devices: int) -> Way:
    """A job in this process with a fork server that has imported JAX before, as the pytest plugin runs its tests."""
    base = {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(devices)}

    def job() -> Ran:
        with tempfile.TemporaryDirectory(prefix="bench-") as folder, ForkServer(base) as fork_server:
            fork_server.prepare(Call("importlib:import_module", '["jax"]'))
            begin = time.monotonic()
            console = Console(ranks, out=io.BytesIO(), color=False, live=False)
            environ = {**base, "BENCH_OUT": folder, "BENCH_BEGIN": repr(begin)}
            result = local.run(
                Job(Script(str(JAX), ()), ranks, devices=devices, timeout=60.0),
                console,
                base=environ,
                fork_server=fork_server,
            )
            console.close()
            return must(Ran(result.exit_code, begin, time.monotonic(), 0.0, "", read_told(folder), 0))

    return job


def reached(ran: Ran) -> dict[str, float]:
    """When the last rank came to each stage, in seconds since the command."""
    return {stage: max(rank["stages"][stage] for rank in ran.told) for stage in ran.told[0]["stages"]}


def compared(results: dict[str, list[Ran]], what: str) -> str:
    """Every way, as a ratio to the first."""
    firsts = {name: median(reached(ran)[FIRST] for ran in runs) for name, runs in results.items()}
    base = next(iter(firsts.values()))
    rows = [
        (
            name,
            duration(firsts[name]),
            times(firsts[name], base),
            duration(median(ran.seconds for ran in runs)),
            f"{median(rank['pss'] for ran in runs for rank in ran.told) / 1e6:.0f} MB",
        )
        for name, runs in results.items()
    ]
    return table((what, "first collective", "ratio", "all over", "memory of a rank (PSS)"), rows)


def stages(results: dict[str, list[Ran]]) -> str:
    rows = [
        (stage, *(duration(median(reached(ran)[stage] for ran in runs)) for runs in results.values()))
        for stage in reached(next(iter(results.values()))[0])
    ]
    return table(("on the last rank", *results), rows)


def four_jax_ranks(rounds: int) -> str:
    mine = ours(4, JAX, devices=2)
    results = in_turns(
        {
            "allranks run": mine,
            "the same, its fork server warm": with_fork_server(4, devices=2),
            "the same, JAX not in the page cache": cold(mine),
            "allranks run --no-zygote": ours(4, "--no-zygote", JAX, devices=2),
            "torchrun": peer(torchrun, 4, JAX, devices=2),
            "bare processes": peer(plain, 4, JAX, devices=2),
        },
        rounds,
    )
    shown = {name: results[name] for name in ("allranks run", "allranks run --no-zygote", "torchrun")}
    return f"{compared(results, '4 JAX ranks x 2 devices')}\n\n{stages(shown)}"


def sixteen_jax_ranks(rounds: int) -> str:
    results = in_turns({"allranks run": ours(16, JAX), "bare processes": peer(plain, 16, JAX)}, rounds)
    return compared(results, "16 JAX ranks")


def four_torch_ranks(rounds: int) -> str:
    results = in_turns(
        {
            "allranks run": ours(4, TORCH),
            "allranks run --no-zygote": ours(4, "--no-zygote", TORCH),
            "torchrun": peer(torchrun, 4, TORCH),
        },
        rounds,
    )
    return compared(results, "4 torch ranks")


def tables(*, quick: bool) -> str:
    """Return the tables."""
    parts = [
        four_jax_ranks(1 if quick else 5),
        sixteen_jax_ranks(1 if quick else 3),
        four_torch_ranks(1 if quick else 3),
    ]
    return "\n\n".join(parts)
