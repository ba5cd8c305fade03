"""What the doctor sees of a real machine, and of what a machine could look like; what hangs is a finding."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from allranks.doctor import between, child, detect, disk, host, system
from allranks.doctor.between import EchoServer, EchoTarget, FolderMarker
from allranks.doctor.host import DoctorRequest

SMALL = 8_000_000


def files(root: Path, **texts: str) -> None:
    for name, text in texts.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


V2 = {
    "proc__self__mountinfo": "30 1 0:1 / /sys/fs/cgroup rw - cgroup2 none rw\n1 0 8:1 / / rw - ext4 /dev/sda rw\n",
    "proc__self__cgroup": "0::/job/step\n",
    "sys__fs__cgroup__job__cpu_dot_max": "400000 100000\n",
    "sys__fs__cgroup__job__step__cpu_dot_max": "max 100000\n",
    "sys__fs__cgroup__job__memory_dot_max": "8000000000\n",
    "sys__fs__cgroup__job__memory_dot_current": "3000000000\n",
    "sys__fs__cgroup__job__memory_dot_stat": "anon 1\ninactive_file 1000000000\n",
    "sys__fs__cgroup__job__step__memory_dot_max": "max\n",
    "sys__fs__cgroup__job__pids_dot_max": "512\n",
    "sys__fs__cgroup__job__pids_dot_current": "37\n",
}
V1 = {
    "proc__self__mountinfo": "30 1 0:1 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "31 1 0:2 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n32 1 0:3 / /x rw - cgroup cgroup rw,pids\n",
    # The path is the host's, and not there in the container.
    "proc__self__cgroup": "4:memory:/docker/abc\n1:cpu,cpuacct:/docker/abc\n0::/\n",
    "sys__fs__cgroup__memory__memory_dot_limit_in_bytes": "8000000000\n",
    "sys__fs__cgroup__memory__memory_dot_usage_in_bytes": "3000000000\n",
    "sys__fs__cgroup__memory__memory_dot_stat": "total_inactive_file 1000000000\n",
    "sys__fs__cgroup__cpu__cpu_dot_cfs_quota_us": "400000\n",
    "sys__fs__cgroup__cpu__cpu_dot_cfs_period_us": "100000\n",
}


@pytest.mark.parametrize("version", [V1, V2])
def test_limits_of_a_cgroup_are_found_in_both_versions(version: dict[str, str], tmp_path: Path) -> None:
    """The tightest on the way up; what could be dropped of the page cache does not count as used."""
    meminfo = "MemTotal:       32000000 kB\nMemAvailable:   30000000 kB\n"
    files(tmp_path, proc__meminfo=meminfo, **version)
    found = system.read_memory(tmp_path)
    assert (found.limit, found.used, found.usable) == (8_000_000_000, 2_000_000_000, 6_000_000_000)
    assert system.read_cores(["0-3,8", "0,9"], "2", tmp_path).quota == 4
    assert system.read_cores(["0-3,8", "0,9"], "2", tmp_path).allowed == 6
    if version is V2:
        limits = system.read_limits(tmp_path)
        assert (limits.processes, limits.running) == ((512, "the cgroup's pids.max"), 37)


def test_no_limit_of_version_1_is_a_number_that_is_none(tmp_path: Path) -> None:
    files(tmp_path, **{**V1, "sys__fs__cgroup__memory__memory_dot_limit_in_bytes": "9223372036854771712\n"})
    assert system.read_memory(tmp_path).limit is None


def test_devices_are_counted_without_asking_a_driver(tmp_path: Path) -> None:
    """Google's network cards have the vendor of TPUs."""
    for number, device in enumerate(("0x0042", "0x0063", "0x0063", "0x001f")):
        files(tmp_path / f"sys/bus/pci/devices/{number}", vendor="0x1ae0\n", device=f"{device}\n")
    files(tmp_path, dev__nvidia0="", dev__nvidia1="", dev__nvidiactl="")
    files(tmp_path, proc__driver__nvidia__version="NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  x\n")
    files(tmp_path / "sys/class/infiniband/mlx5_0/ports/1", state="4: ACTIVE\n")
    found = system.count_kernel_devices(tmp_path)
    assert str(found) == "2 NVIDIA GPUs, 2 TPU chips (driver 550.54.15)"
    assert system.infiniband_port_states(tmp_path) == {"mlx5_0/1": "ACTIVE"}
    assert system.huge_pages(tmp_path) == ""
    assert system.count_kernel_devices(tmp_path / "nothing").total == 0


def test_this_machine_is_seen() -> None:
    mine = system.read_cores([system.allowed_cores()], "")
    assert mine.allowed == len(os.sched_getaffinity(0))
    memory = system.read_memory()
    assert 0 < memory.usable <= memory.total
    assert any("127.0.0.1" in one.addresses for one in system.read_interfaces())
    assert system.read_limits().open > 2
    assert system.probe_shared_memory().trouble == ""


def test_requirements_are_those_of_the_packages_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    found = detect.installed_versions()
    request, _ = detect.read_requirements(found)
    assert request is not None
    assert request["allranks"] >= 6
    monkeypatch.setattr(detect, "_installed_version", lambda name: "" if name == "greenlet" else "0.1")
    _, unmet = detect.read_requirements({"allranks": "0.1.0"})
    assert {(one.wants.partition(">")[0], one.installed) for one in unmet} >= {("greenlet", ""), ("numpy", "0.1")}


def tried(folder: str, patience: float = 60.0) -> disk.FolderReport:
    return host.probe_folder(folder, "x", DoctorRequest((folder,), SMALL, patience, launched=False))


def test_a_folder_is_tried_out_and_left_as_it_was(tmp_path: Path) -> None:
    """On the disk of this test and in shared memory: what every Linux file system can."""
    (tmp_path / "mine").write_text("x")
    for folder in (str(tmp_path), "/dev/shm"):
        before = sorted(os.listdir(folder))
        found = tried(folder)
        assert {one.name for one in found.tried if one.passed} >= {
            "rename",
            "fsync",
            "exclusive",
            "link",
            "flock",
            "mmap",
        }
        assert found.speed["write"] > 0 < found.speed["read"]
        assert [row.verdict for row in disk.folder_rows(found)][1] == "ok"
        if folder != "/dev/shm":
            assert sorted(os.listdir(folder)) == before == ["mine"]


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    (row,) = disk.folder_rows(tried(str(tmp_path / "none")))
    assert row.verdict == "error"
    assert "No such file or directory" in row.texts[0]


@pytest.fixture
def frozen(tmp_path: Path) -> Iterator[Path]:
    """A file system that lets every write stand still: what a dead file server looks like."""

    def works(*words: object) -> bool:
        return subprocess.run([str(word) for word in words], check=False, capture_output=True).returncode == 0

    image, root = tmp_path / "image", tmp_path / "disk"
    root.mkdir()
    with image.open("wb") as file:
        file.truncate(32 << 20)
    if not (works("mkfs.ext4", "-q", "-F", image) and works("mount", "-o", "loop", image, root)):
        pytest.skip("this user has no permission mount a file system of its own")
    try:
        if not works("fsfreeze", "-f", root):
            pytest.skip("no fsfreeze here")
        yield root
    finally:
        works("fsfreeze", "-u", root)
        while child._abandoned:
            child._abandoned.pop().wait()
        works("umount", root)


def test_a_file_system_that_hangs_is_a_finding(frozen: Path) -> None:
    """It is left after the deadline, though the kernel does not let go of the process."""
    began = time.monotonic()
    (row,) = disk.folder_rows(tried(str(frozen), patience=2.0))
    assert time.monotonic() - began < 30
    assert row.verdict == "error"
    # On a busy machine Python itself may not have started by then.
    assert re.search(r"no answer to `(mkdir|stat|python)` after 2 s", row.texts[0])


@pytest.mark.parametrize(
    ("text", "state", "says"),
    [
        ("import time; time.sleep(600)", "late", "import torch|python"),
        ("raise OSError('libcudart.so.12: cannot open')", "failed", "^OSError: libcudart.so.12: cannot open"),
    ],
)
def test_a_framework_that_hangs_or_fails_does_so_elsewhere(
    text: str, state: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setattr(detect, "has_framework", lambda _: True)
    found = host.probe_framework("torch", timeout_seconds=2.0 if state == "late" else 60.0)
    assert found.state == state
    assert re.search(says, found.trouble or found.doing)


def test_variables_are_named_only_if_there_are_any(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("JAX_", "XLA_", "TORCH_", "NCCL_", "GLOO_"))]:
        monkeypatch.delenv(name)
    assert host.named_variables().verdict == "not seen"
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    assert host.named_variables().texts == ("known, or named in what is installed: NCCL_DEBUG",)
    assert host.xla_flags("").verdict == "not seen"


def test_a_name_that_does_not_resolve_and_a_resolver_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert host.resolve_host_name("localhost", 60.0).addresses
    answer = threading.Event()

    def resolver(name: str, *_: object, **__: object) -> None:
        if name == "slow":
            answer.wait()
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", resolver)
    assert host.resolve_host_name("none", 60.0).trouble == "Name or service not known"
    assert host.resolve_host_name("slow", 0.1).late
    answer.set()


def test_only_who_knows_the_token_is_answered() -> None:
    """A host is reached at its own port; a stranger's, and a closed one, are told apart."""
    echo, other = EchoServer("b", "a" * 32), EchoServer("c", "a" * 32)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    token = "a" * 32
    addresses = ("127.0.0.1", "::1") if socket.has_dualstack_ipv6() else ("127.0.0.1",)
    targets = [EchoTarget("b", addresses, echo.port, token), EchoTarget("b", ("127.0.0.1",), other.port, token)]
    *right, wrong = between.reach_hosts("a", targets, timeout_seconds=20.0)
    assert all(one.trouble == "" and one.seconds > 0 for one in right)
    assert wrong.trouble == "host c answers there"
    (refused,) = between.reach_hosts("a", [EchoTarget("b", ("127.0.0.1",), port, token)], timeout_seconds=20.0)
    assert "refused" in refused.trouble
    (stranger,) = between.reach_hosts("a", [replace(targets[1], token="b" * 32)], timeout_seconds=20.0)
    assert stranger.trouble == "a stranger"
    echo.close()
    other.close()


def test_a_marker_is_found_and_locked_and_taken_away(tmp_path: Path) -> None:
    marker = FolderMarker(str(tmp_path), patience=60.0)
    assert (marker.trouble, marker.locks) == ("", True)
    sight = between.find_marker(str(tmp_path), marker.token, "1", timeout_seconds=20.0)
    assert sight.seconds is not None
    assert sight.lock is True
    assert between.find_marker(str(tmp_path), "another", "2", timeout_seconds=0.1).seconds is None
    assert marker.collect_answers() == ["1"]
    assert os.listdir(tmp_path) == []
    nowhere = FolderMarker(str(tmp_path / "none"), patience=60.0)
    assert "No such file" in nowhere.trouble
    assert nowhere.collect_answers() == []
