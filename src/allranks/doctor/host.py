"""Examine one host, and collect all its rows of the report."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from allranks.doctor import detect, devices, disk, machine, network, ranks, software, system
from allranks.doctor.child import run_probe
from allranks.doctor.devices import FrameworkDevices
from allranks.doctor.network import NameLookup
from allranks.errors import AllranksError
from allranks.findings import Row, error, not_determined, not_seen, ok, warning
from allranks.hang import query
from allranks.names.variables import NAMES
from allranks.readiness import variables
from allranks.readiness.flags import read_in_child
from allranks.readiness.name_search import contains_name

_FRAMEWORKS = ("jax", "torch")
# A child must not take the memory of a GPU, nor open the driver just to count.
_GENTLY = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
_VISIBLE_DEVICES = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "TPU_VISIBLE_CHIPS")


@dataclass(frozen=True, slots=True)
class DoctorRequest:
    """The arguments of ``allranks doctor``: what to examine.

    - ``folders``: as the user names them.
    - ``nbytes``: the size of the files to write there.
    - ``patience``: how many seconds to wait for each answer.
    - ``launched``: this is a job of ranks, not one process that was started by hand.
    """

    folders: tuple[str, ...]
    nbytes: int
    patience: float
    launched: bool


@dataclass(frozen=True, slots=True)
class HostInfo:
    """What a rank reports of itself before the examination; ``boot`` identifies the running kernel."""

    host: str
    boot: str
    cores: str
    visible: str


def host_info(host: str) -> HostInfo:
    visible = next((os.environ[name] for name in _VISIBLE_DEVICES if name in os.environ), "")
    return HostInfo(host, system.boot_id(), system.allowed_cores(), visible)


@dataclass(frozen=True, slots=True)
class HostReport:
    """The result of a host: its rows of the report, the values that must be equal on all hosts, and its addresses."""

    rows: tuple[Row, ...]
    versions: Mapping[str, str]
    hardware: Mapping[str, str]
    addresses: tuple[str, ...]


def examine_host(request: DoctorRequest, local_ranks: Sequence[HostInfo], hosts: int) -> HostReport:
    """Examine this host, and return its report. It takes some seconds, and every probe has a deadline.

    ``local_ranks`` are the ranks of this host; ``hosts`` is the number of hosts of the job.
    """
    labels = disk.folder_labels(request.folders)
    places = [
        row for folder in request.folders for row in disk.folder_rows(probe_folder(folder, labels[folder], request))
    ]
    with ThreadPoolExecutor() as pool:
        named = pool.submit(resolve_host_name, socket.gethostname(), request.patience)
        frameworks = list(pool.map(lambda name: probe_framework(name, request.patience), _FRAMEWORKS))
    found, kernel, interfaces = detect.installed_versions(), system.count_kernel_devices(), system.read_interfaces()
    cores = system.read_cores([one.cores for one in local_ranks], os.environ.get("OMP_NUM_THREADS", ""))
    memory, limits = system.read_memory(), system.read_limits()
    fabric = system.infiniband_port_states()
    rows = [
        running_jobs_row(),
        software.versions_row(found),
        software.packages_row(*detect.read_requirements(found)),
        *devices.device_rows(
            kernel,
            frameworks,
            os.environ,
            visible_devices=[one.visible for one in local_ranks],
            is_launched=request.launched,
        ),
        machine.cores_row(cores, len(local_ranks)),
        machine.memory_row(memory, len(local_ranks)),
        machine.shared_memory_row(system.probe_shared_memory()),
        *machine.limit_rows(limits),
        machine.locked_memory_row(limits, list(fabric)),
        machine.huge_pages_row(system.huge_pages(), kernel.counts.get("tpu", 0)),
        *network.interfaces_row(interfaces, os.environ, hosts),
        network.infiniband_row(fabric),
        network.hostname_row(
            named.result(),
            [address for one in interfaces for address in one.addresses],
            hosts,
            has_interface_variable="GLOO_SOCKET_IFNAME" in os.environ,
        ),
        network.proxies_row(os.environ),
        *places,
        *environment_rows(frameworks),
    ]
    hardware = {
        "accelerators": str(kernel) or "none",
        "cores": str(cores.counted),
        "memory": f"{memory.total / machine.GB:.0f} GB",
    }
    return HostReport(
        tuple(row for row in rows if row is not None), found, hardware, network.reachable_addresses(interfaces)
    )


def probe_framework(name: str, timeout_seconds: float) -> FrameworkDevices:
    """Import a framework in a separate process, and return the devices that it finds."""
    if not detect.has_framework(name):
        return FrameworkDevices(name, "absent")
    output = run_probe(f"{name}.py", timeout_seconds=timeout_seconds, environ=_GENTLY)
    if output.code is None:
        return FrameworkDevices(name, "late", output.seconds, doing=output.doing)
    if output.code or output.last_value("devices") is None:
        trouble = output.trouble or f"exit code {output.code}"
        return FrameworkDevices(name, "failed", output.seconds, trouble, output.doing)
    known = {key: value for line in output.lines for key, value in line.items()}
    return FrameworkDevices(name, "answered", output.seconds, output=known)


def probe_folder(folder: str, folder_label: str, request: DoctorRequest) -> disk.FolderReport:
    """Probe a folder in a separate process, and return the results."""
    output = run_probe("disk_probe.py", folder, str(request.nbytes), timeout_seconds=request.patience)
    tried = tuple(disk.DiskTrial(*line["tried"]) for line in output.lines if "tried" in line)
    trouble = output.last_value("trouble") or (
        "" if output.code in (0, None) else output.trouble or f"exit code {output.code}"
    )
    return disk.FolderReport(
        folder_label,
        where=output.last_value("where") or folder,
        kind=output.last_value("kind") or "",
        source=output.last_value("source") or "",
        total=output.last_value("total") or 0,
        free=output.last_value("free") or 0,
        inodes=output.last_value("inodes"),
        tried=tried,
        trouble=trouble,
        doing=output.doing if output.code is None else "",
        seconds=output.seconds,
        speed=output.last_value("speed") or {},
        durable=output.last_value("durable"),
        cached=bool(output.last_value("cached")),
        measured=output.last_value("measured") or 0,
    )


def resolve_host_name(name: str, timeout_seconds: float) -> NameLookup:
    """Return the addresses of a host name.

    A resolver that does not answer within ``timeout_seconds`` seconds is abandoned.
    """
    found: list[NameLookup] = []

    def resolve() -> None:
        began = time.monotonic()
        try:
            infos = socket.getaddrinfo(name, None, proto=socket.IPPROTO_TCP)
        except OSError as error:
            found.append(NameLookup(name, trouble=error.strerror or str(error), seconds=time.monotonic() - began))
            return
        addresses = tuple(dict.fromkeys(str(info[4][0]) for info in infos))
        found.append(NameLookup(name, addresses, seconds=time.monotonic() - began))

    thread = threading.Thread(target=resolve, name="allranks-doctor-lookup", daemon=True)
    thread.start()
    thread.join(timeout_seconds)
    return found[0] if found else NameLookup(name, seconds=timeout_seconds, late=True)


def running_jobs_row() -> Row:
    try:
        return ranks.jobs_row(query.jobs_on_this_machine())
    except AllranksError as error:
        return not_determined("running jobs", str(error))


def launchers_here() -> list[str]:
    return [name for name in ranks.LAUNCHERS if shutil.which(name)]


def environment_rows(frameworks: Sequence[FrameworkDevices]) -> Iterator[Row]:
    """Yield report rows that say whether something reads each variable, and whether XLA knows each flag."""
    if late := [one.name for one in frameworks if one.state == "late"]:
        yield not_determined("variables", f"the files of {', '.join(late)} were not read: they may hang, too")
        return
    yield named_variables()
    yield xla_flags(os.environ.get("XLA_FLAGS", ""))


def named_variables() -> Row:
    report = [name for name in sorted(os.environ) if name.startswith(tuple(NAMES))]
    if not report:
        return not_seen("variables", f"none that begins with {', '.join(NAMES)}")
    found = variables.unread_row(os.environ, lambda name: contains_name(name, ()))
    if found.verdict == "ok":
        return ok("variables", f"known, or named in what is installed: {', '.join(report)}")
    return warning("variables", f"{found.texts[0]} among the installed packages; your program may", remedy=found.remedy)


def xla_flags(flags: str) -> Row:
    if not flags:
        return not_seen("XLA flags", "XLA_FLAGS is not set")
    if not detect.has_framework("jaxlib"):
        return not_determined("XLA flags", f"{flags}: jaxlib, which reads them, is not installed")
    try:
        read = read_in_child(flags)
    except subprocess.TimeoutExpired as late:
        return not_determined("XLA flags", f"jaxlib did not read them within {late.timeout:.0f} s")
    if read.refused:
        remedy = "Remove it from XLA_FLAGS: every process that starts JAX ends there."
        return error("XLA flags", read.refused, remedy=remedy)
    return ok("XLA flags", f"a process of this jaxlib has read them: {flags}")
