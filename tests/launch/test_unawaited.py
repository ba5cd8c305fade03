"""A thousand steps that nobody awaits, on virtual CPU devices: what deadlocks in plain JAX does not here."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

import pytest
from jobs import PATIENCE, allranks, environment

from allranks import agent
from allranks.messages.book import BOOK
from allranks.world.base import World

pytest_plugins = ["pytester"]
STEPS = """
import sys
def steps(devices, count=1000):
    import jax
    jax.config.update("jax_num_cpu_devices", devices)
    import jax.numpy as jnp
    mesh = jax.make_mesh((devices,), ("d",))
    x = jax.device_put(jnp.ones((devices * 4, 64)), jax.NamedSharding(mesh, jax.P("d")))
    step = jax.jit(lambda x: x + x.sum() * 0)
    for _ in range(count):
        x = step(x)
    assert float(x.block_until_ready().sum()) == devices * 4 * 64
    print("all steps done")
if __name__ == "__main__":
    steps(int(sys.argv[1]))
"""


@pytest.fixture
def xla_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    for name in ("NPROC", "PJRT_NPROC", "XLA_FLAGS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(3))
    return agent.load("allranks_agent_xla_threads")


@pytest.mark.parametrize(
    ("environ", "asked", "seen"),
    [
        ({}, 1, None),
        ({}, 2, "4"),
        ({"NPROC": "2"}, None, None),
        ({"NPROC": "2"}, 4, "8"),
        ({"NPROC": "64"}, 8, "64"),
        ({"NPROC": "64", "PJRT_NPROC": "2"}, 8, "16"),
        ({"XLA_FLAGS": "--xla_a=1 --xla_force_host_platform_device_count=5"}, None, "10"),
        ({"XLA_FLAGS": "--xla_force_host_platform_device_count=5"}, 2, "4"),
        ({"NPROC": "many"}, 2, "4"),
    ],
)
def test_the_pool_gets_two_threads_a_device_and_never_fewer_than_was_asked_for(
    xla_threads: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    environ: dict[str, str],
    asked: int | None,
    seen: str | None,
) -> None:
    """XLA reads the larger number; the program's own environment is as before."""
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    before = dict(os.environ)
    jaxlib = ModuleType("jaxlib.xla_client")
    jaxlib.make_cpu_client = lambda **_: os.environ.get("PJRT_NPROC", os.environ.get("NPROC"))  # type: ignore[attr-defined]
    xla_threads._wrap_make_cpu_client(jaxlib)
    xla_threads._wrap_make_cpu_client(jaxlib)
    assert jaxlib.make_cpu_client(num_devices=asked) == (seen or environ.get("NPROC"))
    assert dict(os.environ) == before


@pytest.mark.needs("jax")
@pytest.mark.parametrize("devices", [pytest.param(2, marks=pytest.mark.soak), 8])  # 8 need the most threads
def test_under_allranks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, devices: int) -> None:
    """However the program makes its devices, and however few threads its user wanted."""
    monkeypatch.setenv("NPROC", "2")
    (tmp_path / "steps.py").write_text(STEPS)
    done = allranks("-n", "1", "steps.py", str(devices), cwd=tmp_path)
    assert done.code == 0, done.out
    assert "all steps done" in done.out


TEST = """
import os
os.environ["NPROC"] = "2"
from steps import steps

def test_alone(): steps(2)
"""


@pytest.mark.needs("jax")
def test_in_an_ordinary_test(pytester: pytest.Pytester) -> None:
    """The plugin sees to the process of pytest itself."""
    pytester.makepyfile(steps=STEPS, test_steps=TEST)
    load = () if entry_points(group="pytest11", name="allranks") else ("-p", "allranks.testing.plugin")
    command = [sys.executable, "-m", "pytest", *load, "-p", "no:cacheprovider", "-q"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout


@pytest.mark.needs("jax")
@pytest.mark.world(n=1, devices=8)
def test_in_the_ranks_of_a_test(world: World) -> None:
    assert world.size == 1
    scope: dict[str, object] = {"__name__": "steps"}
    exec(STEPS, scope)
    scope["steps"](8)  # type: ignore[operator]


@pytest.mark.soak
@pytest.mark.needs("jax")
def test_without_us_it_deadlocks_and_is_explained(tmp_path: Path) -> None:
    """Plain JAX on two threads: XLA warns after 20 s, and its warning is in the table."""
    (tmp_path / "steps.py").write_text(STEPS)
    with (tmp_path / "log").open("wb") as log:
        command = [sys.executable, "steps.py", "2"]
        plain = subprocess.Popen(command, cwd=tmp_path, env={**environment(), "NPROC": "2"}, stdout=log, stderr=log)
        with pytest.raises(subprocess.TimeoutExpired):
            plain.wait(30)
        plain.kill()
        plain.wait()
    found = {known.name for _, _, known in BOOK.find_in_output((tmp_path / "log").read_bytes())}
    assert "xla-rendezvous" in found
