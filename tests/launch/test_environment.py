"""What each launcher's variables look like from inside a rank."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.launch.environment import JobLocation, for_rank, rendezvous_flags
from allranks.launch.job import STYLES, Command, Job
from allranks.launch.placement import Placement

BASE = {"PATH": "/bin", "HOME": "/home/ann"}


def site(*, cores: int = 8, ranks: int = 4, **base: str) -> JobLocation:
    return JobLocation(
        "job-1",
        Placement(("hosta",), (ranks,)),
        "127.0.0.1",
        4001,
        4002,
        cores,
        "/tmp/c",
        "/pkg/agent",
        {**BASE, **base},
    )


def environment(style: str = "default", rank: int = 1, devices: int | None = None, **base: str) -> dict[str, str]:
    return for_rank(Job(Command(("python",)), 4, devices=devices, style=style), rank, site(**base))  # type: ignore[arg-type]


TORCH = {
    "RANK": "1",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "4",
    "LOCAL_WORLD_SIZE": "4",
    "GROUP_RANK": "0",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "4002",
}


@pytest.mark.parametrize(
    ("style", "has", "lacks"),
    [
        ("default", {**TORCH, "JAX_PROCESS_COUNT": "4", "JAX_PROCESS_INDEX": "1"}, {"SLURM_PROCID", "ROLE_RANK"}),
        ("torchrun", {**TORCH, "ROLE_RANK": "1", "TORCHELASTIC_RUN_ID": "job-1"}, {"JAX_COORDINATOR_ADDRESS"}),
        ("slurm", {"SLURM_PROCID": "1", "SLURM_NTASKS": "4", "SLURM_STEP_NODELIST": "localhost"}, {"RANK"}),
        ("ompi", {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, {"RANK", "SLURM_PROCID"}),
    ],
)
def test_a_style_sets_the_variables_of_its_launcher_only(style: str, has: dict[str, str], lacks: set[str]) -> None:
    """A program that looks for another launcher's variables does not find them."""
    found = environment(style)
    assert found.items() >= has.items()
    assert found.keys().isdisjoint(lacks)


@pytest.mark.parametrize("style", STYLES)
def test_an_outer_launcher_is_not_heard(style: str) -> None:
    """Inside a Slurm step, or under torchrun, a rank sees its own numbers; facts about the allocation stay."""
    outer = {
        "SLURM_JOB_ID": "77",
        "SLURM_PROCID": "31",
        "SLURM_STEP_NUM_NODES": "9",
        "RANK": "31",
        "JAX_PROCESS_INDEX": "31",
        "OMPI_COMM_WORLD_RANK": "31",
        "TORCHELASTIC_RUN_ID": "outer",
        "ALLRANKS_RANK": "31",
    }
    found = environment(style, **outer)
    assert found["SLURM_JOB_ID"] == "77"
    assert not {"31", "9", "outer"} & set(found.values())


def test_devices_mean_virtual_cpu_devices() -> None:
    """`-d 2` asks JAX for two CPU devices, on the platform that the user has set if he has."""
    assert environment(devices=2).items() >= {"JAX_NUM_CPU_DEVICES": "2", "JAX_PLATFORMS": "cpu"}.items()
    assert environment(devices=2, JAX_PLATFORMS="cpu,tpu")["JAX_PLATFORMS"] == "cpu,tpu"
    assert environment().keys().isdisjoint({"JAX_NUM_CPU_DEVICES", "JAX_PLATFORMS"})


@given(ranks=st.integers(1, 64), devices=st.none() | st.integers(1, 16), cores=st.integers(1, 256))
def test_threads_are_shared_out(ranks: int, devices: int | None, cores: int) -> None:
    """No rank gets less than one thread, all together not more than the cores; XLA has two a device."""
    found = for_rank(Job(Command(("python",)), ranks, devices=devices), ranks - 1, site(cores=cores, ranks=ranks))
    threads = int(found["OMP_NUM_THREADS"])
    assert threads >= 1
    assert threads * ranks <= max(cores, ranks)
    assert int(found["NPROC"]) >= max(2 * (devices or 1), threads)


def test_the_users_own_settings_stand() -> None:
    """Thread counts that the user has set are left alone, and so is the rest of his environment."""
    own = {"OMP_NUM_THREADS": "7", "NPROC": "5", "PATH": "/opt/bin"}
    assert environment(**own).items() >= {**own, "HOME": "/home/ann"}.items()


def test_our_sitecustomize_comes_first_on_the_path() -> None:
    """The user's PYTHONPATH follows ours; without one there is no empty entry, which would mean the directory."""
    assert environment(PYTHONPATH="/a:/b")["PYTHONPATH"] == "/pkg/agent:/a:/b"
    assert environment()["PYTHONPATH"] == "/pkg/agent"


@given(ranks=st.integers(1, 50), style=st.sampled_from(STYLES))
def test_ranks_differ_in_their_number_only(ranks: int, style: str) -> None:
    """Two ranks of a job agree on every variable but those that count them."""
    job = Job(Command(("python",)), ranks, style=style)  # type: ignore[arg-type]
    first, last = for_rank(job, 0, site(ranks=ranks)), for_rank(job, ranks - 1, site(ranks=ranks))
    assert first.keys() == last.keys()
    different = {name for name in first if first[name] != last[name]}
    assert all((first[name], last[name]) == ("0", str(ranks - 1)) for name in different)


@given(st.floats(0, 1e5))
def test_waits_are_ended_when_they_were_to_be(seconds: float) -> None:
    """A warning comes before, half way at the latest; both together take as long as was asked for, in whole seconds."""
    waits = dict(flag.removeprefix("--").split("=") for flag in rendezvous_flags(seconds))
    for kind in ("xla_cpu_collective_call", "xla_gpu_first_collective_call"):
        warning, end = (int(waits[f"{kind}_{what}_timeout_seconds"]) for what in ("warn_stuck", "terminate"))
        assert 1 <= warning <= min(20, end)
        assert max(2, seconds) <= warning + end < max(2, seconds) + 1


def test_the_users_own_flags_come_after_those_of_the_timeout() -> None:
    """XLA takes the last of two. Without the option, nothing is touched."""
    job = Job(Command(("python",)), 2, rendezvous_timeout=7.5, xla_flags=("--xla_a=7",))
    found = for_rank(job, 0, site(XLA_FLAGS="--xla_a=9"))
    assert found["XLA_FLAGS"] == "--xla_a=7 --xla_a=9"
    assert found["ALLRANKS_RENDEZVOUS_TIMEOUT"] == "7.5"
    assert environment(XLA_FLAGS="--xla_a=9")["XLA_FLAGS"] == "--xla_a=9"
    assert environment().keys().isdisjoint({"XLA_FLAGS", "ALLRANKS_RENDEZVOUS_TIMEOUT"})
