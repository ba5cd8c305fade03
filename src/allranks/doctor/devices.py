"""Check devices: what the kernel shows, what frameworks see, and how many ranks share a device. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from allranks.doctor.hosts import format_bytes, format_duration
from allranks.findings import Row, error, not_determined, not_seen, ok, warning

# A start that takes longer is told, in seconds.
_SLOW = 15.0
_BUILDS = 'A build for the CPU is installed: pip install "jax[cuda13]" (or [tpu]); torch from its index for your CUDA.'
MAKERS = {"nvidia": "NVIDIA GPU", "amd": "AMD GPU", "tpu": "TPU chip"}
# What says which devices a process may see.
VISIBLE = (
    *("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
    *("TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES", "TPU_PROCESS_BOUNDS", "JAX_PLATFORMS", "JAX_NUM_CPU_DEVICES"),
    *("JAX_CUDA_VISIBLE_DEVICES", "JAX_ROCM_VISIBLE_DEVICES"),
)


@dataclass(frozen=True, slots=True)
class KernelDevices:
    """The number of devices by vendor, in /dev, /proc and on the PCI bus; ``driver`` is NVIDIA's driver version."""

    counts: Mapping[str, int] = field(default_factory=dict)
    driver: str = ""

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def __str__(self) -> str:
        counted = [f"{n} {MAKERS[maker]}{'' if n == 1 else 's'}" for maker, n in self.counts.items() if n]
        return ", ".join(counted) + (f" (driver {self.driver})" if self.driver else "")


@dataclass(frozen=True, slots=True)
class FrameworkDevices:
    """The result of a child process that imported a framework and listed its devices.

    - ``state``: "absent" (not installed), "failed", "late" (no answer in time), or "answered".
    - ``doing``: the last step that the process began.
    - ``output``: version, platform, devices (kind, bytes) and, for torch, how it was built.
    """

    name: str
    state: str
    seconds: float = 0.0
    trouble: str = ""
    doing: str = ""
    output: Mapping[str, Any] = field(default_factory=dict)

    @property
    def accelerators(self) -> int:
        return 0 if self.output.get("platform", "cpu") == "cpu" else len(self.output["devices"])


def framework_row(found: FrameworkDevices) -> Row:
    """Return a report row that says whether a framework can be imported and finds devices."""
    if found.state == "absent":
        return not_seen(found.name, f"{found.name} is not installed")
    if found.state == "late":
        why = f"a process that did `{found.doing}` had no answer after {found.seconds:.0f} s, and was left alone"
        remedy = "The same hangs in your program: look at the driver (nvidia-smi, dmesg), at who holds the devices, "
        remedy += "and at the file system of the installation."
        if "local_devices" in found.doing:
            remedy += " One worker of a TPU pod waits for the others: start the doctor on all of them."
        return error(found.name, why, remedy=remedy)
    if found.state == "failed":
        if "already in use" in found.trouble:
            return warning(found.name, found.trouble, remedy="End the process that holds it, or ignore this.")
        repair = f"Repair the installation of {found.name}, or what it names."
        flags = "Correct XLA_FLAGS: see the row XLA flags." if "in XLA_FLAGS" in found.trouble else ""
        return error(found.name, f"`{found.doing}` fails: {found.trouble}", remedy=flags or repair)
    devices = found.output["devices"]
    kinds = Counter((kind, nbytes) for kind, nbytes in devices)
    told = [
        f"{n} x {kind}" + (f", {format_bytes(nbytes)} each" if nbytes else "") for (kind, nbytes), n in kinds.items()
    ]
    sees = f"{found.name} {found.output['version']} sees {'; '.join(told) or 'the CPU alone'}"
    more = [f"{word} {value}" for word, value in found.output.get("built", {}).items() if value]
    slow = f", after {format_duration(found.seconds)}" if found.seconds > _SLOW else ""
    return ok(found.name, sees + slow, *([", ".join(more)] if more else []), margin=float(len(devices)))


def devices_row(kernel: KernelDevices, frameworks: Sequence[FrameworkDevices], environ: Mapping[str, str]) -> Row:
    """Return a report row that says whether a framework sees the kernel's devices.

    It is enough if one framework sees them; the other frameworks may be for other work.
    """
    if not kernel.total:
        return not_seen("accelerators", "no NVIDIA, AMD or TPU device in /dev, /proc or on the PCI bus")
    answered = [one for one in frameworks if one.state == "answered"]
    if not answered:
        return not_determined("accelerators", f"{kernel}; no framework says what it sees")
    visible = {name: environ[name] for name in VISIBLE if name in environ}
    sees = [f"{one.name} {one.output['version']} sees {one.accelerators or 'none'} of them" for one in answered]
    told = [str(kernel), *sees, *(f"{name}={value}" for name, value in visible.items())]
    most = max(one.accelerators for one in answered)
    if not most:
        remedy = f"Unset {' and '.join(visible)}, if they are meant to be used." if visible else _BUILDS
        return warning("accelerators", *told, remedy=remedy)
    if most < kernel.total and not visible:
        return warning("accelerators", *told, remedy="One may have failed: nvidia-smi, dmesg | grep -i xid.")
    return ok("accelerators", *told, margin=float(most))


def devices_per_rank_row(accelerators: int, ranks: int, *, launched: bool, virtual: Mapping[str, int]) -> Row:
    """Return a report row that says whether each rank of a host has devices of its own.

    ``accelerators`` is how many devices the ranks see together. ``virtual`` maps each framework to the number of CPU
    devices of a process that has no accelerators.
    """
    topic = "ranks and devices"
    if not launched:
        remedy = "Start the doctor as the job: srun, torchrun, or allranks run -n N -- allranks doctor."
        return not_determined(topic, "one process was started, not a job", remedy=remedy)
    told = f"{ranks} rank{'' if ranks == 1 else 's'} on this host"
    if not accelerators:
        each = ", ".join(f"{name}: {n} of the CPU each" for name, n in virtual.items())
        return ok(topic, f"{told}; {each}") if each else not_determined(topic, f"{told}; no framework answers")
    told += f", {accelerators} accelerator{'' if accelerators == 1 else 's'}"
    if ranks > accelerators:
        remedy = "Start one rank a device: more on one have each a part of its memory, and NCCL refuses them."
        return error(topic, told, remedy=remedy)
    if accelerators % ranks:
        return warning(
            topic, f"{told}: they cannot be divided evenly", remedy="Start one rank per device, or one per host."
        )
    if ranks == accelerators:
        return ok(topic, f"{told}: one per rank")
    each = f"{told}: {accelerators // ranks} each"
    return ok(topic, each, "for JAX; torch uses one per process, and leaves the others idle")


def accelerators_in_use(most: int, visible: Sequence[str]) -> int:
    """Return how many accelerators the ranks of a host see together.

    ``most`` is how many the framework of one rank sees. ``visible`` is each rank's CUDA_VISIBLE_DEVICES or its
    equivalent; "" if it is not set.
    """
    names = {name for output in visible for name in output.split(",") if name}
    return max(most, len(names)) if most and all(visible) else most


def device_rows(
    kernel: KernelDevices,
    frameworks: Sequence[FrameworkDevices],
    environ: Mapping[str, str],
    *,
    visible: Sequence[str],
    launched: bool,
) -> Iterator[Row]:
    """Yield all report rows about a host's devices; ``visible`` has an entry per rank (see ``accelerators_in_use``)."""
    yield from map(framework_row, frameworks)
    yield devices_row(kernel, frameworks, environ)
    answered = [one for one in frameworks if one.state == "answered"]
    most = max((one.accelerators for one in answered), default=0)
    virtual = {one.name: len(one.output["devices"]) or 1 for one in answered}
    yield devices_per_rank_row(accelerators_in_use(most, visible), len(visible), launched=launched, virtual=virtual)
