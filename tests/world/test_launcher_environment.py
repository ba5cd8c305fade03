"""Who are we? Signs that agree make a world; signs that contradict each other are both named, with the cure."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest

from allranks.errors import AllranksError, ContradictingSigns
from allranks.world.launcher_environment import Framework, LauncherEnvironment, decide

ABSENT, INSTALLED, IMPORTED = Framework(), Framework(True), Framework(True, True)
STARTED = Framework(True, True, started=True)


def met(rank: int, size: int) -> Framework:
    return Framework(True, True, initialised=(rank, size), started=True)


def torchrun(rank: int, size: int) -> dict[str, str]:
    return {"RANK": f"{rank}", "WORLD_SIZE": f"{size}", "LOCAL_RANK": f"{rank}", "MASTER_ADDR": "h", "MASTER_PORT": "5"}


def slurm(rank: int, size: int) -> dict[str, str]:
    step = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": f"{size}", "SLURM_STEP_NODELIST": "n[01-02]"}
    return {
        "SLURM_PROCID": f"{rank}",
        "SLURM_LOCALID": f"{rank}",
        "SLURM_JOB_ID": "7",
        "SLURM_NTASKS": f"{size}",
        **step,
    }


def mpi(rank: int, size: int) -> dict[str, str]:
    here = {"OMPI_COMM_WORLD_LOCAL_RANK": f"{rank}", "OMPI_COMM_WORLD_LOCAL_SIZE": f"{size}"}
    return {"OMPI_COMM_WORLD_RANK": f"{rank}", "OMPI_COMM_WORLD_SIZE": f"{size}", **here}


def pmi(rank: int, size: int) -> dict[str, str]:
    return {"PMI_RANK": f"{rank}", "PMI_SIZE": f"{size}"}


def ours(rank: int, size: int) -> dict[str, str]:
    return {
        "ALLRANKS_RANK": f"{rank}",
        "ALLRANKS_SIZE": f"{size}",
        "ALLRANKS_COORDINATOR": "h:1",
        **torchrun(rank, size),
    }


LAUNCHERS = {"allranks": ours, "torchrun": torchrun, "Open MPI": mpi, "PMI": pmi, "Slurm": slurm}
POD = {"TPU_WORKER_HOSTNAMES": "a,b", "TPU_WORKER_ID": "0"}
BATCH = {"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "7"}

# What is there, and what the error says of one sign, of the other, and of the cure.
CONTRADICTIONS: dict[str, tuple[Mapping[str, str], dict[str, Any], tuple[str, str, str]]] = {
    "a launcher and no framework": (
        torchrun(1, 4),
        {},
        ("torchrun says rank 1 of 4 (RANK, WORLD_SIZE)", "neither jax nor torch is installed", "pip install"),
    ),
    "our launcher and no framework": (
        ours(1, 4),
        {},
        ("allranks says rank 1 of 4 (ALLRANKS_RANK, ALLRANKS_SIZE)", "neither jax nor torch", 'backend="single"'),
    ),
    "the framework asked for is not the one installed": (
        slurm(1, 4),
        {"torch": INSTALLED, "backend": "jax"},
        ("Slurm says rank 1 of 4", "jax is not installed", 'pip install "allranks[jax]"'),
    ),
    "a TPU pod without jax": (
        POD,
        {"torch": IMPORTED},
        ("TPU_WORKER_HOSTNAMES=a,b", "jax is not installed", 'pip install "allranks[jax]"'),
    ),
    "Slurm says 4, torch has initialised 1": (
        slurm(2, 4),
        {"torch": met(0, 1)},
        ("Slurm says rank 2 of 4", "torch.distributed is initialised as rank 0 of 1", "Call allranks.init() first"),
    ),
    "torchrun says 4, jax has initialised 2": (
        torchrun(3, 4),
        {"jax": met(1, 2)},
        ("torchrun says rank 3 of 4", "jax.distributed is initialised as rank 1 of 2", "or give it all ranks"),
    ),
    "Slurm says 4, torchrun's variables say 1": (
        {**slurm(2, 4), **torchrun(0, 1)},
        {"torch": INSTALLED},
        ("Slurm says rank 2 of 4", "torchrun says rank 0 of 1", "Have torchrun start all 4"),
    ),
    "mpirun started 4 torchruns of 2": (
        {**mpi(3, 4), **torchrun(1, 2)},
        {"torch": INSTALLED},
        ("Open MPI says rank 3 of 4", "torchrun says rank 1 of 2", "unset the variables"),
    ),
    "torchrun inside allranks run": (
        {**ours(1, 2), **torchrun(3, 4)},
        {"torch": INSTALLED},
        ("allranks says rank 1 of 2", "torchrun says rank 3 of 4", "not with one inside the other"),
    ),
    "mpirun inside allranks run": (
        {**ours(0, 2), **mpi(1, 2)},
        {"jax": INSTALLED},
        ("allranks says rank 0 of 2", "Open MPI says rank 1 of 2", "`allranks run` or with Open MPI"),
    ),
    "jax has used its devices already": (
        torchrun(0, 4),
        {"jax": STARTED},
        ("torchrun says rank 0 of 4", "JAX has already used its devices", "before the first jax.devices()"),
    ),
    "jax has used its devices already, on a pod": (
        POD,
        {"jax": STARTED},
        ("TPU_WORKER_HOSTNAMES=a,b", "JAX has already used its devices", "before the first jax.devices()"),
    ),
    "the frameworks disagree": (
        {},
        {"jax": met(0, 2), "torch": met(1, 2)},
        (
            "jax.distributed is initialised as rank 0 of 2",
            "torch.distributed is initialised as rank 1 of 2",
            "same rank",
        ),
    ),
    "the other framework was asked for": (
        {},
        {"jax": INSTALLED, "torch": met(0, 2), "backend": "jax"},
        ("backend='jax'", "torch.distributed is initialised as rank 0 of 2", "Leave backend out"),
    ),
    "alone was asked for, but a framework has met others": (
        {},
        {"jax": met(0, 2), "backend": "single"},
        ("backend='single'", "jax.distributed is initialised as rank 0 of 2", "do not initialise jax.distributed"),
    ),
    "mp.spawn has started the ranks": (
        {},
        {"torch": IMPORTED, "is_child": True},
        ("started by multiprocessing", "rank 0 of 1", "instead of mp.spawn"),
    ),
    "a worker of a loader imports the program once more": (
        ours(1, 2),
        {"torch": IMPORTED, "is_child": True, "is_importing": True},
        ("allranks says rank 1 of 2", "a child of that rank", '__name__ == "__main__"'),
    ),
    "torch was asked for and is not installed": (
        {},
        {"jax": INSTALLED, "backend": "torch"},
        ("backend='torch'", "torch is not installed", 'pip install "allranks[torch]"'),
    ),
    "a batch script that was to be many": (
        BATCH,
        {"jax": INSTALLED},
        ("Slurm says 4 tasks (SLURM_NTASKS)", "not started by srun", "`srun python train.py`"),
    ),
    "no such rank": (
        torchrun(4, 4),
        {"torch": INSTALLED},
        ("torchrun says rank 4 of 4", "there is no such rank", "unset RANK and WORLD_SIZE"),
    ),
    "no number": (
        {**torchrun(0, 4), "WORLD_SIZE": "four"},
        {"torch": INSTALLED},
        ("WORLD_SIZE='four'", "is not a number", "unset WORLD_SIZE"),
    ),
    "ranks that cannot meet": (
        pmi(0, 4),
        {"jax": INSTALLED},
        ("PMI says rank 0 of 4", "no variable says at which address the ranks can join", "Set MASTER_ADDR"),
    ),
    "torch on two hosts of mpirun": (
        {**mpi(0, 4), "OMPI_COMM_WORLD_LOCAL_SIZE": "2"},
        {"torch": INSTALLED},
        ("Open MPI says rank 0 of 4", "no variable says at which address the ranks can join", "MASTER_PORT"),
    ),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_contradicting_signs_are_both_named_with_the_cure(case: str) -> None:
    environ, rest, parts = CONTRADICTIONS[case]
    with pytest.raises(ContradictingSigns) as caught:
        decide(LauncherEnvironment(environ=environ, **rest))
    for part in parts:
        assert part in str(caught.value)
    assert parts[2] in caught.value.remedy


@pytest.mark.parametrize(
    ("environ", "rest", "expected"),
    [
        ({}, {}, ("single", 0, 1, "", None)),
        ({}, {"jax": STARTED, "torch": IMPORTED}, ("single", 0, 1, "", None)),
        (torchrun(0, 1), {}, ("single", 0, 1, "torchrun", None)),
        (torchrun(0, 1), {"torch": IMPORTED}, ("torch", 0, 1, "torchrun", None)),
        (ours(0, 1), {"torch": INSTALLED, "jax": IMPORTED}, ("single", 0, 1, "allranks", None)),
        (ours(0, 1), {"torch": INSTALLED, "backend": "torch"}, ("torch", 0, 1, "allranks", None)),
        ({}, {"torch": INSTALLED, "backend": "torch"}, ("torch", 0, 1, "", None)),
        ({}, {"jax": INSTALLED, "backend": "jax"}, ("single", 0, 1, "", None)),
        ({}, {"is_child": True, "is_importing": True}, ("single", 0, 1, "", None)),
        ({}, {"is_child": True, "backend": "single"}, ("single", 0, 1, "", None)),
        ({}, {"is_child": True, "torch": met(1, 2)}, ("torch", 1, 2, "", None)),
        (torchrun(3, 4), {"jax": INSTALLED, "torch": INSTALLED}, ("torch", 3, 4, "torchrun", "h:5")),
        (torchrun(3, 4), {"jax": IMPORTED, "torch": INSTALLED}, ("jax", 3, 4, "torchrun", "h:6")),
        (torchrun(3, 4), {"jax": IMPORTED, "torch": IMPORTED, "backend": "jax"}, ("jax", 3, 4, "torchrun", "h:6")),
        (torchrun(3, 4), {"jax": INSTALLED}, ("jax", 3, 4, "torchrun", "h:6")),
        (torchrun(3, 4), {"backend": "single"}, ("single", 0, 1, "", None)),
        (ours(3, 4), {"jax": INSTALLED, "torch": INSTALLED}, ("jax", 3, 4, "allranks", "h:1")),
        (ours(3, 4), {"jax": INSTALLED, "torch": IMPORTED}, ("torch", 3, 4, "allranks", "h:5")),
        (slurm(3, 4), {"jax": INSTALLED, "torch": INSTALLED}, ("jax", 3, 4, "Slurm", "n01:49369")),
        (slurm(3, 4), {"torch": INSTALLED}, ("torch", 3, 4, "Slurm", "n01:49369")),
        (mpi(3, 4), {"torch": INSTALLED}, ("torch", 3, 4, "Open MPI", "127.0.0.1:49152")),
        (POD, {"jax": INSTALLED, "torch": IMPORTED}, ("jax", None, None, "TPU", None)),
        # Where only JAX knows rank and size, it reads its own variables too.
        ({**POD, "JAX_COORDINATOR_ADDRESS": "c:1"}, {"jax": INSTALLED}, ("jax", None, None, "TPU", None)),
        ({}, {"jax": IMPORTED, "cluster": "k8s"}, ("jax", None, None, "k8s", None)),
        # torchrun on each of two hosts, started by srun: more ranks than tasks.
        ({**slurm(1, 2), **torchrun(5, 8)}, {"torch": INSTALLED}, ("torch", 5, 8, "torchrun", "h:5")),
        # A script that forks more ranks than the launcher started, and has initialised them.
        (torchrun(0, 2), {"torch": met(3, 4)}, ("torch", 3, 4, "torchrun", None)),
        ({}, {"jax": met(1, 2), "torch": met(1, 2), "backend": "torch"}, ("torch", 1, 2, "", None)),
        ({}, {"torch": met(0, 1)}, ("torch", 0, 1, "", None)),
        # An interactive shell, an allocation without a process of its own, a leftover RANK: nobody was launched.
        ({**BATCH, "SLURM_STEP_ID": str(0xFFFFFFFA)}, {}, ("single", 0, 1, "", None)),
        ({"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4"}, {}, ("single", 0, 1, "", None)),
        ({"RANK": "1", "WORLD_SIZE": "4"}, {}, ("single", 0, 1, "", None)),
    ],
)
def test_signs_that_agree_are_believed(environ: Mapping[str, str], rest: dict[str, Any], expected: Any) -> None:
    decision = decide(LauncherEnvironment(environ=environ, **rest))
    assert (decision.backend, decision.rank, decision.size, decision.launcher, decision.address) == expected


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(AllranksError, match=r"backend='mpi'.*None, 'single', 'jax' or 'torch'"):
        decide(LauncherEnvironment(environ={}, backend="mpi"))


def test_no_rank_is_lost_whatever_is_said() -> None:
    """Of all pairs of launchers and all states of the frameworks, none makes a world smaller than some sign says it is.

    Only a framework that has met other ranks may overrule an outer launcher.
    """
    states = [ABSENT, INSTALLED, IMPORTED, STARTED, met(0, 1), met(1, 2), met(1, 4)]
    words = [(launcher(*who), who[1]) for launcher in LAUNCHERS.values() for who in ((0, 1), (1, 2), (1, 4))]
    read_well = 0
    for (one, size), (two, other), jax, torch in itertools.product(words, [*words, ({}, 1)], states, states):
        said = [size if one.items() <= {**one, **two}.items() else 1, other]
        initialised = [framework.initialised[1] for framework in (jax, torch) if framework.initialised]
        try:
            decision = decide(LauncherEnvironment(environ={**one, **two}, jax=jax, torch=torch))
        except ContradictingSigns:
            continue
        read_well += 1
        assert decision.size is not None
        assert decision.size >= max(initialised if max(initialised, default=1) > 1 else said)
        assert (decision.backend != "single") or decision.size == 1
    assert read_well > 1000
