"""Which host of which job this is: by options, by what an engine says, and never by a guess."""

from __future__ import annotations

import pytest

from allranks.engine_variables import hosts_of_node_list
from allranks.errors import ContradictingSigns
from allranks.launch.hosts.place import CANDIDATES, HostOptions, HostPlace, note_of, place_of

SLURM = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "2",
    "SLURM_NODEID": "2",
    "SLURM_STEP_NUM_NODES": "4",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NODELIST": "n[08-11]",
}
MPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}
ENGINES = {
    "Slurm": (SLURM, 2, 4, "n08"),
    "Open MPI": ({**MPI, "OMPI_MCA_orte_hnp_uri": "1.0;tcp://10.0.0.1,10.1.0.1:44"}, 1, 2, "10.0.0.1"),
    "Kubeflow": (
        {"PET_NNODES": "3", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "a-0", "PET_MASTER_PORT": "9"},
        1,
        3,
        "a-0",
    ),
    "SkyPilot": ({"SKYPILOT_NODE_RANK": "1", "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2"}, 1, 2, "10.0.0.1"),
    "TPU": ({"TPU_WORKER_ID": "1", "TPU_WORKER_HOSTNAMES": "t0,t1"}, 1, 2, "t0"),
    "two TPU slices": (
        {
            "TPU_WORKER_ID": "1",
            "TPU_WORKER_HOSTNAMES": "t0,t1",
            "MEGASCALE_NUM_SLICES": "2",
            "MEGASCALE_SLICE_ID": "1",
            "MEGASCALE_COORDINATOR_ADDRESS": "s0:8080",
        },
        3,
        4,
        "s0",
    ),
    "NODE_RANK": ({"NODE_RANK": "1", "NNODES": "2", "MASTER_ADDR": "m", "MASTER_PORT": "1234"}, 1, 2, "m"),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_what_an_engine_says_is_enough(engine: str) -> None:
    environ, number, hosts, coordinator = ENGINES[engine]
    place = place_of(HostOptions(), environ)
    assert place is not None
    assert (place.number, place.fewest, place.most, place.coordinator) == (number, hosts, hosts, coordinator)
    assert place.evidence


def test_a_jobset_needs_the_number_of_hosts_only() -> None:
    environ = {"JOB_COMPLETION_INDEX": "1", "JOBSET_NAME": "train", "REPLICATED_JOB_NAME": "ranks"}
    assert place_of(HostOptions(), environ) is None
    place = place_of(HostOptions(hosts=(2, 2)), environ)
    assert place is not None
    assert (place.number, place.coordinator) == (1, "train-ranks-0-0.train")


def test_by_hand() -> None:
    place = place_of(HostOptions((2, 4), 3, "node0:29400"), {})
    assert place == HostPlace(4, 3, "node0", (29400,), fewest=2, evidence="--hosts 2:4")
    assert place_of(HostOptions((2, 2), None, "[fe80::1]:7"), {}) == HostPlace(
        2, None, "fe80::1", (7,), fewest=2, evidence="--hosts 2"
    )


def test_steps_of_one_job_meet_at_different_ports() -> None:
    first = place_of(HostOptions(), SLURM)
    second = place_of(HostOptions(), {**SLURM, "SLURM_STEP_ID": "1"})
    assert first is not None
    assert second is not None
    assert first.job != second.job
    assert len(first.ports) == CANDIDATES
    assert first.ports[0] != second.ports[0]


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "4", "SLURM_PROCID": "0"},
        {**SLURM, "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": "1"},
        {"TPU_WORKER_ID": "0", "TPU_WORKER_HOSTNAMES": "localhost"},
        {"MASTER_ADDR": "m", "MASTER_PORT": "1"},
        {"NODE_RANK": "0", "NNODES": "1"},
    ],
)
def test_one_host_is_one_host(environ: dict[str, str]) -> None:
    assert place_of(HostOptions(), environ) is None


def test_hosts_1_overrides_every_engine() -> None:
    assert all(place_of(HostOptions(hosts=(1, 1)), environ) is None for environ, *_ in ENGINES.values())


@pytest.mark.parametrize(
    ("options", "environ", "says"),
    [
        (HostOptions(number=1), SLURM, r"--host-rank 1, but Slurm says node 2 of 4 .* Leave --host-rank out"),
        (HostOptions(hosts=(3, 3)), SLURM, r"--hosts 3, but Slurm says node 2 of 4"),
        (HostOptions(hosts=(2, 2)), {}, r"nothing says which host is host 0\. Give --coordinator HOST:PORT"),
        (HostOptions(number=1), {}, r"nothing says how many hosts the job has\. Give --hosts N"),
        (HostOptions((2, 2), 2, "a:1"), {}, r"host 2 of 2: there is no such host"),
        (HostOptions((2, 2), 1, "a:b"), {}, r"--coordinator a:b: expected HOST:PORT"),
        (HostOptions((2, 2), 1, "a:70000"), {}, r"--coordinator a:70000: expected HOST:PORT"),
        (HostOptions((2, 2), 1, "a:b:7"), {}, r"--coordinator a:b:7: expected HOST:PORT"),
        (HostOptions((2, 2), 1, "fd00::1:29400"), {}, r"needs brackets: \[fd00::1\]:29400\.$"),
        (HostOptions((2, 2), 1, "fd00::1:80"), {}, r"brackets: \[fd00::1\]:80\. The whole .* \[fd00::1:80\]:29400\."),
        (
            HostOptions(),
            {**SLURM, "SLURM_STEP_NUM_TASKS": "8"},
            r"Slurm started 8 tasks on 4 hosts .* one on each host, found several.*--ntasks-per-node=1",
        ),
        (
            HostOptions(),
            {**SLURM, "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": "2"},
            r"Slurm started 2 tasks on 1 hosts",
        ),
        (HostOptions(), {**MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, r"Open MPI says process 1 of 2 .*--npernode 1"),
        (HostOptions(), MPI, r"Open MPI says process 1 of 2 .*nothing says which host is host 0"),
        (HostOptions(), {**MPI, **SLURM}, r"Open MPI says process 1 of 2 .* but Slurm says node 2 of 4"),
        (HostOptions(), {**SLURM, "SLURM_NODEID": "x"}, r"SLURM_NODEID='x' is not a number"),
    ],
)
def test_contradictions_are_errors(options: HostOptions, environ: dict[str, str], says: str) -> None:
    with pytest.raises(ContradictingSigns, match=says):
        place_of(options, environ)


def test_one_launcher_in_a_job_of_several_hosts_is_pointed_out() -> None:
    batch = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "4", "SLURM_PROCID": "0"}
    assert "4 hosts, and allranks run was started on one of them" in note_of(batch)
    assert note_of({**batch, "SLURM_JOB_NUM_NODES": "1"}) == note_of(SLURM) == note_of({}) == ""


@pytest.mark.parametrize(
    ("nodes", "hosts"),
    [
        ("", ()),
        ("h0", ("h0",)),
        ("a,b", ("a", "b")),
        ("gpu[003-005,9],login1", ("gpu003", "gpu004", "gpu005", "gpu9", "login1")),
        ("r[1-2]n[09-10]-x,z", ("r1n09-x", "r1n10-x", "r2n09-x", "r2n10-x", "z")),
    ],
)
def test_slurms_short_lists_of_hosts(nodes: str, hosts: tuple[str, ...]) -> None:
    assert hosts_of_node_list(nodes) == hosts
