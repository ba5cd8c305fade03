"""Read this machine's values from /proc, /sys and the limits of processes. Nothing here can hang."""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import math
import mmap
import os
import re
import resource
import socket
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

from allranks.doctor.devices import KernelDevices
from allranks.doctor.machine import MachineCores, MachineMemory, ProcessLimits, SharedMemory
from allranks.doctor.network import NetworkInterface

_SHARED = "/dev/shm"  # noqa: S108 - it is looked at
_SIOCGIFADDR = 0x8915
# As jax/_src/hardware_utils.py has them: Google's network cards and disks have the same vendor.
_GOOGLE = "0x1ae0"
_TPUS = ("0x0027", "0x0056", "0x005e", "0x0062", "0x0063", "0x006f", "0x0076")
_IF_UP = 1
# Threads: where fewer are left, those of this user are counted one by one.
_FEW_LEFT = 100_000


def _read_kernel_file(path: Path) -> str:
    """Return the content of a kernel file; "" if the file is missing or not readable."""
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def boot_id() -> str:
    """Return the identity of this running kernel."""
    return _read_kernel_file(Path("/proc/sys/kernel/random/boot_id"))


def _parse_number(text: str) -> int | None:
    """Return the number in a text; None for "max", for no number, and for the value of cgroups v1 for no limit."""
    return int(text) if text.isdecimal() and int(text) < 1 << 60 else None


def _cgroup_folders(controller: str, root: Path) -> Iterator[Path]:
    """Yield the folders of this process's cgroup that have a controller, innermost first, up to the mount.

    In a container the path may be that of the host. Then only the mount itself exists.
    """
    mounts = []
    for line in _read_kernel_file(root / "proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind == "cgroup2" or (kind == "cgroup" and controller in options.split(",")):
            mounts.append((kind, root / before.split()[4].lstrip("/")))
    for line in _read_kernel_file(root / "proc/self/cgroup").splitlines():
        _, names, path = line.split(":", 2)
        for kind, mount in mounts:
            if (not names and kind == "cgroup2") or (kind == "cgroup" and controller in names.split(",")):
                here = mount / path.lstrip("/")
                inside = [here, *(parent for parent in here.parents if parent.is_relative_to(mount))]
                yield from (folder for folder in inside if folder.is_dir())


def allowed_cores(root: Path = Path("/")) -> str:
    """Return the cores that this process may use, in the kernel's format, e.g. ``0-3,8``."""
    found = re.search(r"Cpus_allowed_list:\s*(\S+)", _read_kernel_file(root / "proc/self/status"))
    return found[1] if found else f"0-{(os.cpu_count() or 1) - 1}"


def parse_core_list(cores: str) -> set[int]:
    """Return the numbers of the cores in a text such as ``0-3,8``."""
    pairs = [part.partition("-") for part in cores.split(",") if part]
    return {at for first, _, last in pairs for at in range(int(first), int(last or first) + 1)}


def read_cores(of_ranks: list[str], threads: str, root: Path = Path("/")) -> MachineCores:
    """Return the cores that this host's ranks may use together; ``of_ranks`` are the allowed cores of each rank."""
    sets = [parse_core_list(one) for one in of_ranks]
    quotas = []
    for folder in _cgroup_folders("cpu", root):
        both = _read_kernel_file(folder / "cpu.max").split()
        pair = both or [_read_kernel_file(folder / "cpu.cfs_quota_us"), _read_kernel_file(folder / "cpu.cfs_period_us")]
        if len(pair) == 2 and pair[0].isdecimal() and pair[1].isdecimal():
            quotas.append(int(pair[0]) / int(pair[1]))
    fewest = min(map(len, sets))
    count = os.cpu_count() or 1
    return MachineCores(count, len(set().union(*sets)), fewest, min(quotas, default=None), _threads(threads))


def _threads(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def read_memory(root: Path = Path("/")) -> MachineMemory:
    known = {
        name: int(kb) * 1024 for name, kb in re.findall(r"(\w+):\s+(\d+) kB", _read_kernel_file(root / "proc/meminfo"))
    }
    total, available = known.get("MemTotal", 0), known.get("MemAvailable", 0)
    limits: list[tuple[int, int]] = []
    for folder in _cgroup_folders("memory", root):
        for limit, used, cache in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            if (most := _parse_number(_read_kernel_file(folder / limit))) is not None:
                idle = re.search(rf"^{cache} (\d+)", _read_kernel_file(folder / "memory.stat"), re.MULTILINE)
                spare = int(idle[1]) if idle else 0
                limits.append((most, (_parse_number(_read_kernel_file(folder / used)) or 0) - spare))
    tightest = min(limits, key=lambda pair: pair[0] - pair[1], default=(None, None))
    return MachineMemory(total, available, *tightest)


def probe_shared_memory() -> SharedMemory:
    """Return the state of /dev/shm, after writing a file there for a moment."""
    try:
        found = os.statvfs(_SHARED)
        with tempfile.TemporaryFile(dir=_SHARED) as file:
            file.truncate(1 << 20)
            with mmap.mmap(file.fileno(), 1 << 20) as data:
                data[:1] = b"x"
    except (OSError, ValueError) as error:
        return SharedMemory(trouble=str(error))
    return SharedMemory(found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail)


def _limit(which: int) -> tuple[float, float]:
    soft, hard = (math.inf if one == resource.RLIM_INFINITY else float(one) for one in resource.getrlimit(which))
    return soft, hard


def _count_threads_of_user(root: Path) -> int:
    """Return how many threads count against this user's RLIMIT_NPROC."""
    number, uid = 0, os.getuid()
    for folder in (root / "proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if folder.name.isdecimal() and folder.stat().st_uid == uid:
                number += int((folder / "stat").read_text().rpartition(")")[2].split()[17])
    return number


def read_limits(root: Path = Path("/")) -> ProcessLimits:
    tasks = re.search(r"/(\d+) ", _read_kernel_file(root / "proc/loadavg"))
    running = int(tasks[1]) if tasks else 0
    of_user = _limit(resource.RLIMIT_NPROC)[0]
    near = of_user - running < _FEW_LEFT  # else the threads of all users fit
    most = [(of_user, "ulimit -u", _count_threads_of_user(root) if near else running)] if os.geteuid() else []
    for folder in _cgroup_folders("pids", root):
        if (number := _parse_number(_read_kernel_file(folder / "pids.max"))) is not None:
            most.append(
                (number, "the cgroup's pids.max", _parse_number(_read_kernel_file(folder / "pids.current")) or 0)
            )
    for name in ("threads-max", "pid_max"):
        if (number := _parse_number(_read_kernel_file(root / "proc/sys/kernel" / name))) is not None:
            most.append((number, f"kernel.{name}", running))
    nearest, name, running = min(most, key=lambda one: one[0] - one[2], default=(math.inf, "", running))
    return ProcessLimits(
        files=_limit(resource.RLIMIT_NOFILE),
        open=len(os.listdir("/proc/self/fd")),
        processes=(nearest, name),
        running=running,
        core=_limit(resource.RLIMIT_CORE)[0],
        locked=_limit(resource.RLIMIT_MEMLOCK)[0],
    )


def count_kernel_devices(root: Path = Path("/")) -> KernelDevices:
    """Count the accelerators that the kernel shows, without calling a driver."""
    nodes = [path.name for path in (root / "dev").glob("nvidia*")]
    nvidia = sum(re.fullmatch(r"nvidia\d+", name) is not None for name in nodes)
    nvidia = nvidia or len(list((root / "proc/driver/nvidia/gpus").glob("*")))
    agents = (root / "sys/class/kfd/kfd/topology/nodes").glob("*/gpu_id")
    amd = sum(_read_kernel_file(path) not in ("", "0") for path in agents)
    vendors = (root / "sys/bus/pci/devices").glob("*/vendor")
    tpus = sum(
        _read_kernel_file(path) == _GOOGLE and _read_kernel_file(path.with_name("device")) in _TPUS for path in vendors
    )
    driver = re.search(r"Kernel Module\D*([\d.]+)", _read_kernel_file(root / "proc/driver/nvidia/version"))
    return KernelDevices({"nvidia": nvidia, "amd": amd, "tpu": tpus}, driver[1] if driver else "")


def read_interfaces(root: Path = Path("/")) -> list[NetworkInterface]:
    sixes: dict[str, list[str]] = {}
    for line in _read_kernel_file(root / "proc/net/if_inet6").splitlines():
        digits, *_, name = line.split()
        sixes.setdefault(name, []).append(str(ipaddress.IPv6Address(int(digits, 16))))
    found = []
    for folder in sorted((root / "sys/class/net").glob("*")):
        flags = _read_kernel_file(folder / "flags")
        addresses = [*_ipv4_addresses(folder.name), *sixes.get(folder.name, [])]
        speed = _read_kernel_file(folder / "speed")
        found.append(
            NetworkInterface(
                folder.name,
                bool(int(flags or "0", 16) & _IF_UP),
                int(_read_kernel_file(folder / "mtu") or 0),
                tuple(addresses),
                int(speed) if speed.isdecimal() else 0,
            )
        )
    return found


def _ipv4_addresses(name: str) -> list[str]:
    """Return an interface's IPv4 address in a list; an empty list if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock, contextlib.suppress(OSError):
        packed = fcntl.ioctl(sock.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
        return [socket.inet_ntoa(packed[20:24])]
    return []


def infiniband_port_states(root: Path = Path("/")) -> dict[str, str]:
    """Return the states of the InfiniBand ports by name, e.g. ``{"mlx5_0/1": "ACTIVE"}``."""
    states = (root / "sys/class/infiniband").glob("*/ports/*/state")
    return {f"{path.parts[-4]}/{path.parts[-2]}": _read_kernel_file(path).partition(": ")[2] for path in sorted(states)}


def huge_pages(root: Path = Path("/")) -> str:
    found = re.search(r"\[(\w+)\]", _read_kernel_file(root / "sys/kernel/mm/transparent_hugepage/enabled"))
    return found[1] if found else ""
