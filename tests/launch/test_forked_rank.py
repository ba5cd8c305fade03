"""A rank that was forked is, as far as a script can see, a fresh ``python train.py``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import allranks, environment, write

LOOK = """\
'''Its doc.'''
import json, os, signal, sys, threading
main = sys.modules["__main__"]
print("LOOK", json.dumps({
    "argv": sys.argv, "orig_argv": sys.orig_argv[1:], "path": [p for p in sys.path if not p.endswith("allranks/agent")],
    "name": __name__, "file": __file__, "doc": __doc__, "package": __package__, "spec": str(__spec__ and __spec__.name),
    "is main": main.__dict__ is globals(), "loader": type(__loader__).__name__, "cached": str(__cached__)[-9:],
    "builtins": __builtins__.__name__, "globals": sorted(k for k in globals() if k.startswith("__")),
    "cwd": os.getcwd(), "threads": threading.active_count(), "main thread": threading.current_thread().name,
    "signals": [str(signal.getsignal(n)).split(" at ")[0] for n in (2, 15, 17)],
    # But for the one that lists them, and the far one that is the agent's.
    "fds": [fd for fd in sorted(map(int, os.listdir("/proc/self/fd"))) if fd < 900][:-1],
    "stdin": sys.stdin.read(), "names": [sys.stdout.name, sys.stderr.name], "mode": sys.stdout.mode,
    "encoding": sys.stdout.encoding, "errors": [sys.stdout.errors, sys.stderr.errors],
    "flags": list(sys.flags),
}))
"""


def seen_under(out: str) -> str:
    return next(line for line in out.splitlines() if "LOOK" in line).split("LOOK ")[1]


@pytest.mark.parametrize("words", [("train.py", "a", "-b"), ("-m", "pkg.train", "a"), ("-m", "pkg")])
def test_a_script_sees_what_python_shows_it(tmp_path: Path, words: tuple[str, ...]) -> None:
    write(tmp_path, LOOK)
    write(tmp_path, LOOK, "pkg/train.py")
    write(tmp_path, LOOK, "pkg/__main__.py")
    done = allranks("-n", "1", *words, cwd=tmp_path)
    python = subprocess.run(
        [sys.executable, *words],
        cwd=tmp_path,
        env=environment() | {"PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(seen_under(done.out)) == json.loads(seen_under(python.stdout))


@pytest.mark.needs("torch")
def test_each_rank_has_random_numbers_of_its_own(tmp_path: Path) -> None:
    """A script that forgets to seed must look as wrong as it is."""
    script = write(
        tmp_path,
        """
        import random, numpy as np, torch
        print("python", random.random(), "numpy", np.random.rand(), "torch", torch.rand(()).item())
        """,
    )
    done = allranks("-n", "2", script, cwd=tmp_path)
    lines = [line.split() for line in done.out.splitlines() if "numpy" in line]
    assert len(lines) == 2, done.out
    for column in (2, 4, 6):
        assert lines[0][column] != lines[1][column]


@pytest.mark.needs("jax")
def test_a_forked_rank_can_spawn_processes_that_import_its_main_module(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        """
        import multiprocessing, numpy
        class Row:
            def __init__(self, value): self.value = value
        def double(row): return Row(2 * row.value)
        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(2) as pool:
                print("doubled", [row.value for row in pool.map(double, [Row(1), Row(2)])])
        """,
    )
    done = allranks("-n", "2", script, cwd=tmp_path)
    assert done.code == 0
    assert done.out.count("doubled [2, 4]") + done.out.count("[0-1] doubled [2, 4]") == 2


def test_exit_functions_run_and_threads_are_waited_for(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        """
        import atexit, threading, time
        atexit.register(lambda: print("exit function"))
        threading.Thread(target=lambda: (time.sleep(0.3), print("thread done"))).start()
        print("main done", end="")
        """,
    )
    done = allranks("-n", "1", script, cwd=tmp_path)
    at = [done.out.index(text) for text in ("main done", "thread done", "exit function")]
    assert at == sorted(at)


def test_the_environment_of_a_rank_is_its_own(tmp_path: Path) -> None:
    """Also what C code reads."""
    script = write(
        tmp_path,
        """
        import ctypes, os
        libc = ctypes.CDLL(None)
        libc.getenv.restype = ctypes.c_char_p
        print("C", libc.getenv(b"RANK"), os.getenv("RANK"))
        """,
    )
    done = allranks("-n", "2", script, cwd=tmp_path)
    assert "C b'0' 0" in done.out
    assert "C b'1' 1" in done.out


@pytest.mark.needs("jax")
@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "import os\nos.environ['JAX_ENABLE_X64'] = '1'\nimport jax\nprint('x64', jax.config.jax_enable_x64)",
            "JAX_ENABLE_X64",
        ),
        ("import numpy, local\nprint('x64', True)", "import tqdm starts 2 threads"),
    ],
)
def test_where_a_fork_is_unsafe_each_rank_starts_its_own_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str
) -> None:
    """And it is said once."""
    # A stand-in for a framework that leaves threads behind.
    threads = """
        import threading, time
        for _ in range(2):
            threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        """
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "installed"), prepend=os.pathsep)
    write(tmp_path, threads, "installed/tqdm.py")
    write(tmp_path, "import tqdm", "local.py")
    done = allranks("-n", "2", write(tmp_path, text), cwd=tmp_path)
    assert done.code == 0, done.out
    assert done.out.count("no fast start, each rank imports by itself: ") == 1
    assert says in done.out
    assert "x64 True" in done.out


def test_a_module_beside_the_script_goes_before_an_installed_one(tmp_path: Path) -> None:
    """As with Python, whatever was imported before the ranks were forked."""
    write(tmp_path, "mine = True", "tqdm.py")
    done = allranks("-n", "2", write(tmp_path, "import tqdm\nprint('mine', tqdm.mine)"), cwd=tmp_path)
    assert done.code == 0, done.out
    assert "[0-1] mine True\n" in done.out
    assert "no fast start, each rank imports by itself: tqdm.py has the name of a module" in done.out


JAX = """
import sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
jax.distributed.initialize()
sharding = NamedSharding(Mesh(np.array(jax.devices()), "x"), P("x"))
x = jax.make_array_from_callback((jax.device_count(),), sharding, lambda i: np.ones(1, np.float32))
total = jax.jit(lambda a: a.sum())
print("sum", int(total(x)), "on", jax.local_device_count(), "devices")
while len(sys.argv) > 1:
    if jax.process_index() == 1:
        exec(sys.argv[1])
    total(x).block_until_ready()
"""


@pytest.mark.needs("jax")
@pytest.mark.parametrize("how", [(), ("--no-zygote",)])
def test_an_unchanged_jax_script_joins_its_world(tmp_path: Path, how: tuple[str, ...]) -> None:
    done = allranks("-n", "2", "-d", "2", *how, write(tmp_path, JAX), cwd=tmp_path)
    assert done.code == 0, done.out
    assert "sum 4 on 2 devices" in done.out
    assert "no fast start" not in done.out


@pytest.mark.needs("jax")
@pytest.mark.parametrize(
    ("end", "code", "says"),
    [
        # The end that says least; the others are told likewise without JAX (test_local.py).
        ("sys.exit(0)", 1, "left early (exit code 0) while ranks 0, 2 still needed it"),
        pytest.param("raise ValueError('bad row')", 1, "ValueError: bad row", marks=pytest.mark.soak),
        pytest.param("import os; os.kill(os.getpid(), 9)", 137, "killed by SIGKILL", marks=pytest.mark.soak),
    ],
)
def test_the_end_of_one_jax_rank_ends_the_job(tmp_path: Path, end: str, code: int, says: str) -> None:
    """Its peers stand in a collective, with two devices each, and would for 300 s."""
    done = allranks("-n", "3", "-d", "2", write(tmp_path, JAX), end, cwd=tmp_path)
    assert done.code == code, done.out
    first = next(line for line in done.out.splitlines() if line.startswith("first failure: rank 1 "))
    assert says in first


@pytest.mark.needs("torch")
def test_an_unchanged_torch_script_joins_its_world(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        """
        import torch, torch.distributed as dist
        dist.init_process_group("gloo")
        x = torch.ones(1)
        dist.all_reduce(x)
        print("sum", int(x))
        dist.destroy_process_group()
        """,
    )
    done = allranks("-n", "2", script, cwd=tmp_path)
    assert done.code == 0, done.out
    assert "[0-1] sum 2" in done.out
