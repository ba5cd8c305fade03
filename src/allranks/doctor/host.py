"""The rows of one host."""

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
from allranks.doctor.child import ask
from allranks.doctor.devices import Framework
from allranks.doctor.network import Lookup
from allranks.errors import AllranksError
from allranks.findings import Row, error, not_determined, not_seen, ok, warning
from allranks.hang import query
from allranks.names.variables import NAMES
from allranks.readiness import variables
from allranks.readiness.flags import read_in_child
from allranks.readiness.name_search import contains

_FRAMEWORKS = ("jax", "torch")
# A child must not take the memory of a GPU, nor open the driver just to count.
_GENTLY = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
_ONE_RANKS_OWN = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "TPU_VISIBLE_CHIPS")


@dataclass(frozen=True, slots=True)
class Asked:
    """What to look at: ``folders`` as the user names them, with files of ``nbytes``; ``patience`` for each answer.

    ``launched`` is whether this is a job of ranks, and not one process that was started by hand.
    """

    folders: tuple[str, ...]
    nbytes: int
    patience: float
    launched: bool


@dataclass(frozen=True, slots=True)
class HostInfo:
    """What a rank says of itself before anything is looked at. ``boot`` tells kernels apart."""

    host: str
    boot: str
    cores: str
    visible: str


def host_info(host: str) -> HostInfo:
    visible = next((os.environ[name] for name in _ONE_RANKS_OWN if name in os.environ), "")
    return HostInfo(host, system.boot(), system.allowed(), visible)


@dataclass(frozen=True, slots=True)
class Looked:
    """What a host has found: its rows, what must be alike on all hosts, and where others can reach it."""

    rows: tuple[Row, ...]
    versions: Mapping[str, str]
    hardware: Mapping[str, str]
    addresses: tuple[str, ...]


def examine(asked: Asked, here: Sequence[HostInfo], hosts: int) -> Looked:
    """Look at this host, on which ``here`` are the ranks, among ``hosts`` hosts. Takes seconds; bounded."""
    labels = disk.labels(asked.folders)
    places = [row for folder in asked.folders for row in disk.rows(place(folder, labels[folder], asked))]
    with ThreadPoolExecutor() as pool:
        named = pool.submit(lookup, socket.gethostname(), asked.patience)
        frameworks = list(pool.map(lambda name: framework(name, asked.patience), _FRAMEWORKS))
    found, kernel, interfaces = detect.versions(), system.kernel(), system.interfaces()
    cores = system.cores([one.cores for one in here], os.environ.get("OMP_NUM_THREADS", ""))
    memory, limits = system.memory(), system.limits()
    fabric = system.fabric()
    rows = [
        jobs(),
        software.versions(found),
        software.packages(*detect.requirements(found)),
        *devices.rows(kernel, frameworks, os.environ, visible=[one.visible for one in here], launched=asked.launched),
        machine.cores(cores, len(here)),
        machine.memory(memory, len(here)),
        machine.shared_memory(system.shared_memory()),
        *machine.limits(limits),
        machine.locked_memory(limits, list(fabric)),
        machine.huge_pages(system.huge_pages(), kernel.counts.get("tpu", 0)),
        *network.interfaces(interfaces, os.environ, hosts),
        network.fabric(fabric),
        network.own_name(
            named.result(),
            [address for one in interfaces for address in one.addresses],
            hosts,
            overruled="GLOO_SOCKET_IFNAME" in os.environ,
        ),
        network.proxies(os.environ),
        *places,
        *environment(frameworks),
    ]
    hardware = {
        "accelerators": str(kernel) or "none",
        "cores": str(cores.counted),
        "memory": f"{memory.total / machine.GB:.0f} GB",
    }
    return Looked(tuple(row for row in rows if row is not None), found, hardware, network.offered(interfaces))


def framework(name: str, patience: float) -> Framework:
    """Ask a process of its own, in which this framework starts, what it sees."""
    if not detect.has(name):
        return Framework(name, "absent")
    said = ask(f"{name}.py", patience=patience, environ=_GENTLY)
    if said.code is None:
        return Framework(name, "late", said.seconds, doing=said.doing)
    if said.code or said.get("devices") is None:
        trouble = said.trouble or f"exit code {said.code}"
        return Framework(name, "failed", said.seconds, trouble, said.doing)
    known = {key: value for line in said.lines for key, value in line.items()}
    return Framework(name, "answered", said.seconds, said=known)


def place(folder: str, label: str, asked: Asked) -> disk.Place:
    """Try out a folder in a process of its own."""
    said = ask("disk_probe.py", folder, str(asked.nbytes), patience=asked.patience)
    tried = tuple(disk.Tried(*line["tried"]) for line in said.lines if "tried" in line)
    trouble = said.get("trouble") or ("" if said.code in (0, None) else said.trouble or f"exit code {said.code}")
    return disk.Place(
        label,
        where=said.get("where") or folder,
        kind=said.get("kind") or "",
        source=said.get("source") or "",
        total=said.get("total") or 0,
        free=said.get("free") or 0,
        inodes=said.get("inodes"),
        tried=tried,
        trouble=trouble,
        doing=said.doing if said.code is None else "",
        seconds=said.seconds,
        speed=said.get("speed") or {},
        durable=said.get("durable"),
        cached=bool(said.get("cached")),
        measured=said.get("measured") or 0,
    )


def lookup(name: str, patience: float) -> Lookup:
    """Return what a name resolves to. A resolver that does not answer is left behind."""
    found: list[Lookup] = []

    def resolve() -> None:
        began = time.monotonic()
        try:
            infos = socket.getaddrinfo(name, None, proto=socket.IPPROTO_TCP)
        except OSError as error:
            found.append(Lookup(name, trouble=error.strerror or str(error), seconds=time.monotonic() - began))
            return
        addresses = tuple(dict.fromkeys(str(info[4][0]) for info in infos))
        found.append(Lookup(name, addresses, seconds=time.monotonic() - began))

    thread = threading.Thread(target=resolve, name="allranks-doctor-lookup", daemon=True)
    thread.start()
    thread.join(patience)
    return found[0] if found else Lookup(name, seconds=patience, late=True)


def jobs() -> Row:
    try:
        return ranks.jobs(query.jobs())
    except AllranksError as error:
        return not_determined("running jobs", str(error))


def launchers_here() -> list[str]:
    return [name for name in ranks.LAUNCHERS if shutil.which(name)]


def environment(frameworks: Sequence[Framework]) -> Iterator[Row]:
    """Yield whether each variable is read by something, and each flag is known to XLA."""
    if late := [one.name for one in frameworks if one.state == "late"]:
        yield not_determined("variables", f"the files of {', '.join(late)} are not read: they may hang, too")
        return
    yield named_variables()
    yield xla_flags(os.environ.get("XLA_FLAGS", ""))


def named_variables() -> Row:
    looked = [name for name in sorted(os.environ) if name.startswith(tuple(NAMES))]
    if not looked:
        return not_seen("variables", f"none that begins with {', '.join(NAMES)}")
    found = variables.unread_row(os.environ, lambda name: contains(name, ()))
    if found.verdict == "ok":
        return ok("variables", f"known, or named in what is installed: {', '.join(looked)}")
    return warning("variables", f"{found.texts[0]}, of what is installed; your program may", remedy=found.remedy)


def xla_flags(flags: str) -> Row:
    if not flags:
        return not_seen("XLA flags", "XLA_FLAGS is not set")
    if not detect.has("jaxlib"):
        return not_determined("XLA flags", f"{flags}: there is no jaxlib to read them")
    try:
        read = read_in_child(flags)
    except subprocess.TimeoutExpired as late:
        return not_determined("XLA flags", f"jaxlib did not read them within {late.timeout:.0f} s")
    if read.refused:
        remedy = "Take it out of XLA_FLAGS: every process that starts JAX ends there."
        return error("XLA flags", read.refused, remedy=remedy)
    return ok("XLA flags", f"a process of this jaxlib has read them: {flags}")
