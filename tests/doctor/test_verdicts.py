"""What the doctor makes of facts: tables of facts and verdicts, and what holds for all of them."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allranks.doctor import clocks, devices, disk, machine, network, ranks, software
from allranks.doctor.devices import FrameworkDevices, KernelDevices
from allranks.doctor.disk import DiskTrial, FolderReport, SeenFolder
from allranks.doctor.hosts import merge_rows_of_hosts
from allranks.doctor.machine import MachineCores, MachineMemory, ProcessLimits, SharedMemory
from allranks.doctor.network import ConnectionAttempt, NameLookup, NetworkInterface
from allranks.doctor.software import UnmetRequirement
from allranks.errors import ContradictingSigns
from allranks.findings import VERDICTS, Row, notes
from allranks.report.ink import make_painter
from allranks.report.readiness import Readiness

GB = machine.GB
INF = math.inf


def test_there_is_no_verdict_without_evidence() -> None:
    for verdict in set(VERDICTS) - {"not seen"}:
        with pytest.raises(ValueError, match="without evidence"):
            Row("clocks", verdict, notes(""))


_VERDICTS = st.sampled_from(VERDICTS)
ROWS = st.builds(
    Row,
    st.just("memory"),
    _VERDICTS,
    st.lists(st.sampled_from(["8 GB", "9 GB", "a little"]), min_size=1, max_size=2).map(lambda texts: notes(*texts)),
    margin=st.sampled_from([1.0, 2.0, INF]),
)


@given(st.lists(ROWS, min_size=1, max_size=9), st.integers(0, 3))
def test_of_many_hosts_the_worst_verdict_counts_and_its_hosts_are_named(rows: list[Row], without: int) -> None:
    """In whatever order they come; some hosts may have nothing to say of a topic."""
    said = [(f"h{at}", row) for at, row in enumerate(rows)]
    hosts = len(rows) + without
    found = merge_rows_of_hosts(said, hosts)
    assert found.verdict == min((row.verdict for row in rows), key=VERDICTS.index)
    assert merge_rows_of_hosts(said[::-1], hosts).verdict == found.verdict
    worst = [host for host, row in said if row.verdict == found.verdict]
    if found.verdict not in ("ok", "not seen") and len({row.texts for _, row in said}) < 4:
        all_alike = len({row.texts for _, row in said}) == 1 and len(worst) == hosts
        assert all_alike or all(host in " ".join(found.texts) for host in worst)
        assert (len(worst) == hosts) or f"not so on {hosts - len(worst)} of {hosts} hosts" in found.texts


def test_of_hosts_that_are_well_the_one_with_the_least_is_shown() -> None:
    said = [
        (name, machine.memory_row(MachineMemory(100 * GB, free * GB), 1))
        for name, free in (("a", 90), ("b", 20), ("c", 80))
    ]
    assert merge_rows_of_hosts(said, 3).texts == ("100 GB, 20 GB available (host b, the least of 3 hosts)",)
    assert merge_rows_of_hosts(said[:1], 1).texts == ("100 GB, 90 GB available",)


@given(
    st.floats(-1e6, 1e6),
    st.lists(st.tuples(st.floats(1e-6, 0.5), st.floats(1e-6, 0.5)), min_size=1, max_size=9),
)
def test_the_true_offset_of_a_clock_is_within_the_doubt(true: float, ways: list[tuple[float, float]]) -> None:
    """However unequal the ways there and back are."""
    samples, now = [], 1000.0
    for there, back in ways:
        samples.append((now, now + there + true, now + there + back))
        now += 1
    ahead, doubt = clocks.clock_offset(samples)
    assert abs(ahead - true) <= doubt + 1e-6
    assert doubt <= min((there + back) / 2 for there, back in ways) + 1e-6


@pytest.mark.parametrize(
    ("found", "verdict", "says"),
    [
        ({"b": (0.0001, 0.0004)}, "ok", "host b is within 0.4 ms of host a"),
        ({"b": (0.2, 0.01), "c": (-0.5, 0.01)}, "ok", "host c is 0.5 s (+- 10 ms) ahead of host a, the farthest"),
        ({"b": (2.5, 0.01)}, "warning", "host b is 2.5 s (+- 10 ms) behind host a"),
        ({"b": (2.5, 2.0)}, "ok", "host b is 2.5 s (+- 2 s) behind host a"),
        ({"b": (-400.0, 0.1)}, "error", "credentials and signed requests are refused"),
        ({"b": None, "c": (0.0, 0.1)}, "not determined", "not measured: host b"),
        ({"b": None}, "not determined", "host a did not answer in time: host b"),
    ],
)
def test_clocks(found: dict[str, tuple[float, float] | None], verdict: str, says: str) -> None:
    row = clocks.clock_row("a", found)
    assert row is not None
    assert row.verdict == verdict
    assert says in row.texts
    assert clocks.clock_row("a", {}) is None


@pytest.mark.parametrize(
    ("found", "on_host", "verdict", "says"),
    [
        (MachineCores(8, 8, 8), 4, "ok", "8 in the machine, 8 allowed"),
        (MachineCores(2, 2, 2), 4, "warning", "4 ranks take turns on 2"),
        (MachineCores(64, 64, 64, quota=8), 1, "warning", "libraries start a thread for each of 64"),
        (MachineCores(64, 64, 64, quota=8, threads=8), 1, "ok", "the cgroup's quota is 8; OMP_NUM_THREADS=8"),
        (MachineCores(64, 4, 1), 4, "warning", "a rank is bound to 1 core"),
        (MachineCores(8, 8, 8, threads=4), 4, "warning", "4 ranks x 4 threads are more than 8 cores"),
        (MachineCores(1, 1, 1), 1, "ok", "1 in the machine"),
    ],
)
def test_cores(found: MachineCores, on_host: int, verdict: str, says: str) -> None:
    row = machine.cores_row(found, on_host)
    assert row.verdict == verdict
    assert says in " ".join(row.texts)


@pytest.mark.parametrize(
    ("found", "on_host", "verdict", "says"),
    [
        (MachineMemory(64 * GB, 60 * GB), 4, "ok", "64 GB, 60 GB available"),
        (MachineMemory(64 * GB, 60 * GB, 8 * GB, 7 * GB), 1, "ok", "ends a process at 8 GB; 1 GB available"),
        (MachineMemory(64 * GB, 60 * GB, 8 * GB, 7 * GB), 2, "warning", "500 MB for each of 2 ranks"),
        (MachineMemory(64 * GB, GB // 2), 1, "warning", "500 MB available"),
    ],
)
def test_memory(found: MachineMemory, on_host: int, verdict: str, says: str) -> None:
    row = machine.memory_row(found, on_host)
    assert row.verdict == verdict
    assert says in " ".join(row.texts)


@pytest.mark.parametrize(
    ("found", "verdict", "remedy"),
    [
        (SharedMemory(16 * GB, 15 * GB), "ok", ""),
        (SharedMemory(67_108_864, 60_000_000), "warning", "--shm-size=8g"),
        (SharedMemory(16 * GB, 10_000_000), "warning", "Remove the files of dead jobs there."),
        (SharedMemory(trouble="No such file or directory"), "error", "mount a tmpfs there"),
    ],
)
def test_shared_memory(found: SharedMemory, verdict: str, remedy: str) -> None:
    row = machine.shared_memory_row(found)
    assert row.verdict == verdict
    assert remedy in row.remedy


def test_limits_of_a_process() -> None:
    tight = ProcessLimits((1024, 4096), 20, (2000, "the cgroup's pids.max"), 1500, 0, 65536)
    files, processes, core = machine.limit_rows(tight)
    assert (files.verdict, files.remedy) == ("warning", "ulimit -n 4096 before the program starts.")
    assert (processes.verdict, processes.texts[0]) == ("warning", "1,500 run of 2,000 (the cgroup's pids.max)")
    assert core.verdict == "not seen"
    low, *_ = machine.limit_rows(dataclasses.replace(tight, files=(256, 256)))
    assert "the hard limit is low" in low.remedy
    wide = ProcessLimits((INF, INF), 20, (INF, "ulimit -u"), 1500, INF, INF)
    assert [row.verdict for row in machine.limit_rows(wide)] == ["ok"] * 3
    assert machine.locked_memory_row(tight, []) is None
    locked = [machine.locked_memory_row(one, ["mlx5_0/1"]) for one in (tight, wide)]
    assert [row and row.verdict for row in locked] == ["warning", "ok"]
    pages = [machine.huge_pages_row(setting, 4) for setting in ("", "madvise", "always")]
    assert [row and row.verdict for row in pages] == ["not determined", "warning", "ok"]
    assert machine.huge_pages_row("never", 0) is None


def gpus(name: str, count: int) -> FrameworkDevices:
    said = {"version": "2.13", "platform": "gpu" if count else "cpu", "devices": [["H100", 80 * GB]] * count}
    return FrameworkDevices(name, "answered", 2.0, output=said)


@pytest.mark.parametrize(
    ("found", "verdict", "says"),
    [
        (FrameworkDevices("torch", "absent"), "not seen", "torch is not installed"),
        (
            FrameworkDevices("torch", "late", 60.0, doing="import torch"),
            "error",
            "`import torch` had no answer after 60 s",
        ),
        (FrameworkDevices("jax", "failed", 1.0, "no GLIBC", "import jax"), "error", "`import jax` fails: no GLIBC"),
        (FrameworkDevices("jax", "failed", 1.0, "The TPU is already in use by process 7"), "warning", "by process 7"),
        (gpus("torch", 8), "ok", "torch 2.13 sees 8 x H100, 80 GB each"),
        (gpus("torch", 0), "ok", "torch 2.13 sees the CPU alone"),
    ],
)
def test_frameworks(found: FrameworkDevices, verdict: str, says: str) -> None:
    row = devices.framework_row(found)
    assert row.verdict == verdict
    assert says in " ".join(row.texts)


def test_a_flag_that_ends_jax_is_no_fault_of_its_installation() -> None:
    found = FrameworkDevices("jax", "failed", 1.0, "Unknown flag in XLA_FLAGS: --xla_x=1", "jax.local_devices()")
    assert devices.framework_row(found).remedy == "Correct XLA_FLAGS: see the row XLA flags."


@pytest.mark.parametrize(
    ("kernel", "frameworks", "environ", "verdict", "says"),
    [
        (0, [gpus("jax", 0)], {}, "not seen", "no NVIDIA, AMD or TPU device"),
        (8, [gpus("jax", 8), gpus("torch", 8)], {}, "ok", "8 NVIDIA GPUs (driver 550)"),
        (8, [gpus("jax", 8), gpus("torch", 0)], {}, "ok", "torch 2.13 sees none of them"),
        (
            8,
            [gpus("jax", 0), gpus("torch", 0)],
            {},
            "warning",
            "jax 2.13 sees none of them torch 2.13 sees none of them",
        ),
        (8, [gpus("jax", 0)], {"JAX_PLATFORMS": "cpu"}, "warning", "JAX_PLATFORMS=cpu"),
        (8, [gpus("jax", 7)], {}, "warning", "jax 2.13 sees 7 of them"),
        (8, [gpus("jax", 2)], {"CUDA_VISIBLE_DEVICES": "0,1"}, "ok", "CUDA_VISIBLE_DEVICES=0,1"),
        (8, [FrameworkDevices("jax", "late")], {}, "not determined", "no framework says what it sees"),
    ],
)
def test_what_the_kernel_has_and_what_frameworks_see(
    kernel: int, frameworks: Sequence[FrameworkDevices], environ: dict[str, str], verdict: str, says: str
) -> None:
    row = devices.devices_row(KernelDevices({"nvidia": kernel}, "550"), frameworks, environ)
    assert row.verdict == verdict
    assert says in " ".join(row.texts)


@pytest.mark.parametrize(
    ("most", "visible", "launched", "verdict", "says"),
    [
        (8, [""], False, "not determined", "not a job"),
        (8, [""] * 8, True, "ok", "8 ranks on this host, 8 accelerators: one per rank"),
        (1, [str(rank) for rank in range(4)], True, "ok", "4 ranks on this host, 4 accelerators: one per rank"),
        (4, [""] * 8, True, "error", "8 ranks on this host, 4 accelerators"),
        (1, ["0"] * 4, True, "error", "4 ranks on this host, 1 accelerator"),
        (8, [""], True, "ok", "8 each"),
        (8, [""] * 3, True, "warning", "cannot be divided evenly"),
        (0, [""] * 2, True, "ok", "2 ranks on this host; jax: 2 of the CPU each"),
    ],
)
def test_ranks_and_devices(most: int, visible: list[str], launched: bool, verdict: str, says: str) -> None:
    seen = devices.accelerators_in_use(most, visible)
    row = devices.devices_per_rank_row(seen, len(visible), is_launched=launched, virtual_devices={"jax": 2})
    assert row.verdict == verdict
    assert says in " ".join(row.texts)


def test_packages_and_versions() -> None:
    assert software.packages_row(None, []).verdict == "not determined"
    assert software.packages_row({"jax": 5}, []).texts[0].endswith("jax 5")
    row = software.packages_row(
        {"jax": 5, "torch": 7}, [UnmetRequirement("jax", "jaxlib==0.10.2", "0.9.0"), UnmetRequirement("torch", "x", "")]
    )
    assert row.verdict == "warning"
    assert row.texts == ("jax asks for jaxlib==0.10.2; 0.9.0 is installed", "torch asks for x; it is not installed")
    same = {"a": {"jax": "1"}, "b": {"jax": "1"}, "c": {"jax": "2"}, "d": {}}
    odd = software.same_on_all_hosts_row(same, "same versions", remedy="", is_error=True)
    assert odd is not None
    assert odd.verdict == "error"
    assert odd.texts == ("jax: hosts a, b: 1; host c: 2; host d: none",)
    equal = software.same_on_all_hosts_row(
        {"a": {"jax": "1"}, "b": {"jax": "1"}}, "same versions", remedy="", is_error=True
    )
    assert equal is not None
    assert equal.texts == ("jax: equal on 2 hosts",)
    assert software.same_on_all_hosts_row({"a": {"jax": "1"}}, "same versions", remedy="", is_error=True) is None


LOOPBACK = NetworkInterface("lo", True, 65536, ("127.0.0.1", "::1"))
ETHERNET = NetworkInterface("eth0", True, 1500, ("10.0.0.1", "fe80::1"), 25000)


@pytest.mark.parametrize(
    ("found", "environ", "hosts", "verdicts"),
    [
        ([LOOPBACK, ETHERNET], {}, 4, ["ok"]),
        ([LOOPBACK], {}, 1, ["not seen"]),
        ([LOOPBACK], {}, 2, ["error"]),
        ([LOOPBACK, ETHERNET], {"NCCL_SOCKET_IFNAME": "eth"}, 2, ["ok", "ok"]),
        ([LOOPBACK, ETHERNET], {"NCCL_SOCKET_IFNAME": "=eth"}, 2, ["ok", "error"]),
        ([LOOPBACK, ETHERNET], {"NCCL_SOCKET_IFNAME": "^lo"}, 2, ["ok", "ok"]),
        ([LOOPBACK, ETHERNET], {"NCCL_SOCKET_IFNAME": "^lo,eth"}, 2, ["ok", "error"]),
        ([LOOPBACK, ETHERNET], {"GLOO_SOCKET_IFNAME": "eth"}, 2, ["ok", "error"]),
        ([LOOPBACK, ETHERNET], {"GLOO_SOCKET_IFNAME": "ib0,eth0"}, 2, ["ok", "ok"]),
    ],
)
def test_interfaces(found: list[NetworkInterface], environ: dict[str, str], hosts: int, verdicts: list[str]) -> None:
    assert [row.verdict for row in network.interfaces_row(found, environ, hosts)] == verdicts


def test_what_an_interface_is_told_as() -> None:
    assert str(ETHERNET) == "eth0 10.0.0.1 fe80::1 (mtu 1500, 25 Gbit/s)"
    assert network.reachable_addresses([LOOPBACK, ETHERNET]) == ("10.0.0.1",)


@pytest.mark.parametrize(
    ("found", "hosts", "verdict", "says"),
    [
        (NameLookup("a", ("10.0.0.1",)), 2, "ok", "a is 10.0.0.1"),
        (NameLookup("a", ("127.0.1.1",)), 2, "error", "other hosts would connect to themselves"),
        (NameLookup("a", ("127.0.1.1",)), 1, "ok", "it works on this machine"),
        (NameLookup("a", ("10.9.9.9",)), 2, "warning", "no address of this machine"),
        (NameLookup("a", trouble="Name or service not known"), 2, "error", "does not resolve"),
        (NameLookup("a", trouble="Name or service not known"), 1, "warning", "gloo needs it"),
        (NameLookup("a", seconds=60.0, late=True), 1, "error", "more than 60 s"),
        (NameLookup("a", ("10.0.0.1",), seconds=5.0), 1, "ok", "which took 5 s"),
    ],
)
def test_the_hosts_own_name(found: NameLookup, hosts: int, verdict: str, says: str) -> None:
    row = network.hostname_row(found, ["10.0.0.1", "127.0.0.1"], hosts, has_interface_variable=False)
    assert row.verdict == verdict
    assert says in " ".join(row.texts)
    overruled = network.hostname_row(found, ["10.0.0.1", "127.0.0.1"], hosts, has_interface_variable=True)
    assert overruled.verdict == ("warning" if found.addresses == ("127.0.1.1",) and hosts > 1 else verdict)


def test_proxies_and_fabric() -> None:
    assert network.proxies_row({"no_proxy": "x"}).verdict == "not seen"
    row = network.proxies_row({"HTTPS_PROXY": "http://p:3128"})
    assert (row.verdict, row.texts) == ("warning", ("HTTPS_PROXY set; no_proxy is not set",))
    assert "p:3128" not in str(row)
    assert [
        network.infiniband_row(ports).verdict for ports in ({}, {"a/1": "ACTIVE"}, {"a/1": "ACTIVE", "b/1": "DOWN"})
    ] == [
        "not seen",
        "ok",
        "warning",
    ]


@given(st.integers(2, 300))
def test_every_host_is_tried_by_another_and_few_by_each(size: int) -> None:
    tried = [network.hosts_to_reach(at, size) for at in range(size)]
    assert {target for targets in tried for target in targets} == set(range(size))
    for at, targets in enumerate(tried):
        assert at not in targets
        assert len(set(targets)) == len(targets) <= 15


def test_who_reaches_whom() -> None:
    """One address that answers is enough; the others are told."""
    both = [ConnectionAttempt("a", "b", "10.0.0.2", 0.0002), ConnectionAttempt("b", "a", "10.0.0.1", 0.0004)]
    docker = ConnectionAttempt("a", "b", "172.17.0.1", trouble="host a answers there")
    row = network.reach_row([*both, docker], 2)
    assert row is not None
    assert row.verdict == "ok"
    assert row.texts[0].endswith("the longest 0.4 ms, from host b to a")
    assert "not at 172.17.0.1 of host b (host a answers there)" in row.texts[1]
    lost = network.reach_row([both[0], ConnectionAttempt("b", "a", "10.0.0.1", trouble="no answer within 5 s")], 2)
    assert lost is not None
    assert (lost.verdict, lost.texts) == ("error", ("host b does not reach host a: 10.0.0.1: no answer within 5 s",))
    assert network.reach_row([], 1) is None
    nobody = network.reach_row([], 2)
    assert nobody is not None
    assert nobody.verdict == "not determined"
    assert network.store_row({"a": 0.001, "b": 0.5}, "the store").verdict == "warning"


FINE = tuple(
    DiskTrial(name, True, name) for name in ("rename", "fsync", "exclusive", "link", "O_DIRECT", "flock", "mmap")
)
PLACE = FolderReport(
    "/runs", "/runs", "nfs4", "server:/runs", 10**13, 10**12, 10**7, tried=FINE, speed={"write": 2e9, "read": 3e9}
)


def but(**changes: object) -> list[Row]:
    return list(disk.folder_rows(dataclasses.replace(PLACE, **changes)))  # type: ignore[arg-type]


def lacking(name: str) -> tuple[DiskTrial, ...]:
    return tuple(DiskTrial(one.name, one.name != name, one.detail) for one in FINE)


@pytest.mark.parametrize(
    ("rows", "verdicts"),
    [
        (but(), ["ok", "ok", "ok"]),
        (but(doing="mkdir", seconds=60.0), ["error"]),
        (but(trouble="Permission denied"), ["error"]),
        (but(free=GB), ["warning", "ok", "ok"]),
        (but(inodes=3), ["warning", "ok", "ok"]),
        (but(inodes=None), ["ok", "ok", "ok"]),
        (but(kind="tmpfs", source="tmpfs"), ["warning", "ok", "ok"]),
        (but(kind="overlay"), ["warning", "ok", "ok"]),
        (but(kind="fuse.gcsfuse"), ["warning", "ok", "ok"]),
        (but(tried=lacking("rename")), ["ok", "error", "ok"]),
        (but(tried=lacking("fsync")), ["ok", "error", "ok"]),
        (but(tried=lacking("link")), ["ok", "warning", "ok"]),
        (but(tried=lacking("flock")), ["ok", "warning", "ok"]),
        (but(tried=lacking("O_DIRECT")), ["ok", "ok", "ok"]),
        (but(speed={}), ["ok", "ok", "not determined"]),
        (but(speed={"write": 1e7, "read": 1e9}), ["ok", "ok", "warning"]),
    ],
)
def test_a_folder(rows: list[Row], verdicts: list[str]) -> None:
    assert [row.verdict for row in rows] == verdicts
    assert "object stores" in but(where="s3://a/b", trouble="No such file or directory")[0].remedy
    assert "no O_DIRECT" in but(tried=lacking("O_DIRECT"))[1].texts[-1]
    assert but(speed={"write": 1e7, "read": 1e9})[2].texts[-1] == "10 GB of a checkpoint take 17 min"


SEEN, LOCKED, BLIND = SeenFolder(0.01, True), SeenFolder(0.01, True, True), SeenFolder()


@pytest.mark.parametrize(
    ("sights", "verdict", "says"),
    [
        ([LOCKED], "ok", "and back, and its lock holds there"),
        ([SEEN, LOCKED], "ok", "there on hosts h0, h1, after 10 ms at most, and back"),
        ([BLIND, BLIND], "warning", "local: what host main wrote is not there on hosts h0, h1"),
        ([SEEN, BLIND], "error", "there on host h0, and not on host h1"),
        ([SeenFolder(0.01), SEEN], "warning", "what host h0 wrote did not come to host main"),
        ([SEEN, SeenFolder(0.01, True, False)], "warning", "a lock of host main does not hold on host h1"),
        ([SEEN, SeenFolder(trouble="no answer within 20 s")], "not determined", "host h1: no answer within 20 s"),
    ],
)
def test_a_shared_folder(sights: list[SeenFolder], verdict: str, says: str) -> None:
    row = disk.shared_folder_row("/runs", "main", {f"h{at}": sight for at, sight in enumerate(sights)})
    assert row is not None
    assert row.verdict == verdict
    assert says in " ".join(row.texts)
    assert disk.shared_folder_row("/runs", "main", {}) is None


def test_a_folder_is_called_shared_only_if_all_hosts_say_so() -> None:
    for sights in itertools.product([SEEN, LOCKED, BLIND, SeenFolder(0.1), SeenFolder(trouble="x")], repeat=3):
        row = disk.shared_folder_row("/runs", "main", {f"h{at}": sight for at, sight in enumerate(sights)})
        assert row is not None
        assert (row.verdict == "ok") == all(sight.answered for sight in sights)


@pytest.mark.parametrize(
    ("names", "boots", "environ", "verdict", "says"),
    [
        ("aabb", "1122", {}, "ok", "2 hosts, 4 ranks: a: ranks 0-1; b: ranks 2-3"),
        ("a", "1", {}, "ok", "1 host, 1 rank: a: rank 0"),
        ("aab", "112", {}, "warning", "not as many on each: host b differ from most"),
        ("aa", "12", {}, "error", "2 machines are called 'a'"),
        ("aabb", "1122", {"SLURM_JOB_NUM_NODES": "4"}, "warning", "SLURM_JOB_NUM_NODES speaks of 4"),
        ("ab", "12", {"TPU_WORKER_HOSTNAMES": "a,b,c"}, "warning", "TPU_WORKER_HOSTNAMES speaks of 3"),
    ],
)
def test_hosts(names: str, boots: str, environ: dict[str, str], verdict: str, says: str) -> None:
    (row,) = ranks.hosts_rows(list(names), list(boots), environ)
    assert row.verdict == verdict
    assert says in " ".join(row.texts)


def test_the_launcher() -> None:
    assert ranks.single_process_row("", ["srun"]).texts == ("none started this process; here are srun",)
    assert ranks.single_process_row("allranks says rank 0 of 1", []).verdict == "ok"
    odd = ranks.contradiction_row(ContradictingSigns("Slurm says 4 tasks.", remedy="Use srun."))
    assert (odd.verdict, odd.texts[0], odd.remedy) == ("error", "Slurm says 4 tasks.", "Use srun.")
    assert (
        ranks.joined_row("torchrun says rank 0 of 4", "torch", "a:1").texts[0].endswith("joined through torch at a:1")
    )
    assert ranks.jobs_row({}).verdict == "not seen"
    assert "allranks doctor 1a2b" in ranks.jobs_row({"1a2b": "4 ranks here, train.py"}).texts[-1]


LABELS = disk.folder_labels(["/runs", "/elsewhere/and/far/away"])
TABLE = Readiness((ranks.jobs_row({}), *but(), *but(free=GB, label=LABELS["/elsewhere/and/far/away"])), ("a", "b"), 4)


def test_long_names_of_folders_are_told_apart() -> None:
    alpha, beta = "/data/alpha/checkpoints", "/data/beta/checkpoints"
    assert disk.folder_labels([alpha, "/runs"]) == {alpha: "...a/checkpoints", "/runs": "/runs"}
    assert disk.folder_labels([alpha, beta]) == {alpha: alpha, beta: beta}


@pytest.mark.parametrize("width", [72, 80, 118, 200])
def test_the_table_is_as_wide_as_the_terminal(width: int) -> None:
    text = TABLE.text(make_painter(False), width=width)
    assert max(map(len, text.splitlines())) <= width
    assert text.splitlines()[-1] == "2 hosts, 4 ranks: 1 warning, 5 ok, 1 not seen"
    assert "files .../and/far/away: Free some, or name another folder." in text.replace("\n  ", " ")
    assert "\x1b[1;33mwarning\x1b[0m" in TABLE.text(make_painter(True), width=width)


def test_the_document_says_whether_it_is_ready() -> None:
    document = TABLE.document("allranks doctor")
    assert (document["ready"], document["hosts"], document["ranks"]) == (True, ["a", "b"], 4)
    assert document["readiness"][1]["verdict"] == "ok"
    assert not Readiness(tuple(but(trouble="Permission denied")), ("a",)).document("allranks doctor")["ready"]


@settings(max_examples=30)
@given(ROWS)
def test_a_row_travels_as_json(row: Row) -> None:
    assert Row.from_json(row.to_json()) == row
