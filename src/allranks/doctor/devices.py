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
    """The devices that the kernel shows, counted by vendor. ``driver`` is NVIDIA's driver version."""

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


def framework_row(framework_devices: FrameworkDevices) -> Row:
    """Return a report row that says whether a framework can be imported and finds devices."""
    if framework_devices.state == "absent":
        return not_seen(framework_devices.name, f"{framework_devices.name} is not installed")
    if framework_devices.state == "late":
        why = f"a process that did `{framework_devices.doing}` had no answer"
        why += f" after {framework_devices.seconds:.0f} s, and was left alone"
        remedy = "The same hangs in your program: look at the driver (nvidia-smi, dmesg), at who holds the devices, "
        remedy += "and at the file system of the installation."
        if "local_devices" in framework_devices.doing:
            remedy += " One worker of a TPU pod waits for the others: start the doctor on all of them."
        return error(framework_devices.name, why, remedy=remedy)
    if framework_devices.state == "failed":
        if "already in use" in framework_devices.trouble:
            return warning(
                framework_devices.name,
                framework_devices.trouble,
                remedy="End the process that holds it, or ignore this.",
            )
        repair = f"Repair the installation of {framework_devices.name}, or what it names."
        flags = "Correct XLA_FLAGS: see the row XLA flags." if "in XLA_FLAGS" in framework_devices.trouble else ""
        return error(
            framework_devices.name,
            f"`{framework_devices.doing}` fails: {framework_devices.trouble}",
            remedy=flags or repair,
        )
    devices = framework_devices.output["devices"]
    kinds = Counter((kind, nbytes) for kind, nbytes in devices)
    told = [
        f"{n} x {kind}" + (f", {format_bytes(nbytes)} each" if nbytes else "") for (kind, nbytes), n in kinds.items()
    ]
    sees = f"{framework_devices.name} {framework_devices.output['version']} sees {'; '.join(told) or 'the CPU alone'}"
    more = [f"{word} {value}" for word, value in framework_devices.output.get("built", {}).items() if value]
    slow = f", after {format_duration(framework_devices.seconds)}" if framework_devices.seconds > _SLOW else ""
    return ok(framework_devices.name, sees + slow, *([", ".join(more)] if more else []), margin=float(len(devices)))


def devices_row(
    kernel_devices: KernelDevices, framework_devices: Sequence[FrameworkDevices], environ: Mapping[str, str]
) -> Row:
    """Return a report row that says whether a framework sees the kernel's devices.

    It is enough if one framework sees them; the other frameworks may be for other work.
    """
    if not kernel_devices.total:
        return not_seen("accelerators", "no NVIDIA, AMD or TPU device in /dev, /proc or on the PCI bus")
    answered = [one for one in framework_devices if one.state == "answered"]
    if not answered:
        return not_determined("accelerators", f"{kernel_devices}; no framework says what it sees")
    visible = {name: environ[name] for name in VISIBLE if name in environ}
    sees = [f"{one.name} {one.output['version']} sees {one.accelerators or 'none'} of them" for one in answered]
    told = [str(kernel_devices), *sees, *(f"{name}={value}" for name, value in visible.items())]
    most = max(one.accelerators for one in answered)
    if not most:
        remedy = f"Unset {' and '.join(visible)}, if they are meant to be used." if visible else _BUILDS
        return warning("accelerators", *told, remedy=remedy)
    if most < kernel_devices.total and not visible:
        return warning("accelerators", *told, remedy="One may have failed: nvidia-smi, dmesg | grep -i xid.")
    return ok("accelerators", *told, margin=float(most))


def devices_per_rank_row(
    accelerators: int, ranks: int, *, is_launched: bool, virtual_devices: Mapping[str, int]
) -> Row:
    """Return a report row that says whether the host has at least one device for each of its ranks.

    ``accelerators`` is how many devices the ranks see together. ``virtual_devices`` maps each framework to the number
    of CPU devices of a process that has no accelerators.
    """
    topic = "ranks and devices"
    if not is_launched:
        remedy = "Start the doctor as the job: srun, torchrun, or allranks run -n N -- allranks doctor."
        return not_determined(topic, "one process was started, not a job", remedy=remedy)
    told = f"{ranks} rank{'' if ranks == 1 else 's'} on this host"
    if not accelerators:
        each = ", ".join(f"{name}: {n} of the CPU each" for name, n in virtual_devices.items())
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


def accelerators_in_use(devices_of_rank: int, visible_devices: Sequence[str]) -> int:
    """Return how many accelerators the ranks of a host see together.

    ``devices_of_rank`` is how many the framework of one rank sees. ``visible_devices`` is each rank's
    CUDA_VISIBLE_DEVICES or its equivalent; "" if it is not set.
    """
    names = {name for output in visible_devices for name in output.split(",") if name}
    return max(devices_of_rank, len(names)) if devices_of_rank and all(visible_devices) else devices_of_rank


def device_rows(
    kernel_devices: KernelDevices,
    framework_devices: Sequence[FrameworkDevices],
    environ: Mapping[str, str],
    *,
    visible_devices: Sequence[str],
    is_launched: bool,
) -> Iterator[Row]:
    """Yield all report rows about a host's devices; ``visible_devices`` has an entry per rank (see
    ``accelerators_in_use``).
    """
    yield from map(framework_row, framework_devices)
    yield devices_row(kernel_devices, framework_devices, environ)
    answered = [one for one in framework_devices if one.state == "answered"]
    most = max((one.accelerators for one in answered), default=0)
    virtual = {one.name: len(one.output["devices"]) or 1 for one in answered}
    yield devices_per_rank_row(
        accelerators_in_use(most, visible_devices),
        len(visible_devices),
        is_launched=is_launched,
        virtual_devices=virtual,
    )
