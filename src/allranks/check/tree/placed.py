"""Where a process of a JAX program puts something on a device that may be another process' own, or asks it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.counts import DEEPEST, DEVICES, device_of, devices_of, is_of_hosts
from allranks.check.tree.origins import passed, values
from allranks.check.tree.syntax import given, inside, name_of, rank_guard, tail_of

# Name -> the argument that is one device.
ONE: dict[str, tuple[int, str]] = {
    "jax.device_put": (1, "device"),
    "jax.default_device": (0, "new_val"),
    "jax.sharding.SingleDeviceSharding": (0, "device"),
    "jax.jit": (9, "device"),
    **{
        f"jax.numpy.{name}": (9, "device")
        for name in (
            *("array", "asarray", "zeros", "ones", "full", "empty", "arange", "eye", "linspace"),
            *("zeros_like", "ones_like", "full_like", "empty_like"),
        )
    },
}
# Name -> the argument that holds devices of this process.
MANY: dict[str, tuple[int, str]] = {
    "jax.device_put_replicated": (1, "devices"),
    "jax.device_put_sharded": (1, "devices"),
    "flax.jax_utils.replicate": (1, "devices"),
    "flax.jax_utils.prefetch_to_device": (2, "devices"),
}
# What only the process can ask that has the device.
ASKED = ("memory_stats", "live_buffers", "memory_usage")
_FOREIGN = "may be a device of another process: this one can put nothing on it"
# CPUs are everybody's only where the processes have been joined.
OF_HOST = "may be a CPU of another process: this one can put nothing on it"
CALLS = (*(name.rpartition(".")[2] for name in (*ONE, *MANY)), *ASKED, "update")


@dataclass(frozen=True, slots=True)
class Misplaced:
    """``what`` is wrong, and where all devices were asked for, if not in the call itself."""

    what: str
    asked: ast.expr | None = None


def misplaced(call: ast.Call, file: File) -> Misplaced | None:
    """Return what is wrong with the device that ``call`` names; None if nothing is."""
    name, tail = name_of(call, file), tail_of(call)
    if name in ONE or name == "jax.config.update":
        device = given(call, *ONE.get(name, (1, "val")))
        if device is None or device_of(device, file) != "all":
            return None
        asked = _asked(device, file)
        what = f"{ast.unparse(device)} {OF_HOST if asked is not None and is_of_hosts(asked) else _FOREIGN}"
    elif name in MANY:
        device = given(call, *MANY[name])
        if device is None or devices_of(device, file) != "all":
            return None
        what = f"{tail} takes the devices of this process, and is given those of all"
    elif tail in ASKED and isinstance(call.func, ast.Attribute) and device_of(call.func.value, file) == "all":
        device, what = call.func.value, f"{tail}() of a device that may be another process' own"
    else:
        return None
    if rank_guard(call, file) is not None or _is_alone(call, file):
        return None
    return Misplaced(what, _asked(device, file))


def _asked(device: ast.expr, file: File) -> ast.expr | None:
    """Return the call of jax.devices that a device comes from."""
    calls = (at for one in _reached(device, file) for at in walk(one) if isinstance(at, ast.Call))
    return next((at for at in calls if name_of(at, file) == DEVICES), None)


def _reached(node: ast.expr, file: File) -> Iterator[ast.AST]:
    """Yield what a device comes from: through names of this file, and parameters."""
    waiting: list[ast.AST] = [node]
    for _ in range(DEEPEST):
        if not waiting:
            return
        at = waiting.pop(0)
        yield at
        names = [one for one in walk(at) if isinstance(one, ast.Name | ast.Attribute)]
        waiting += [value for one in names for value in values(one, file) or passed(one, file)]


def _is_alone(call: ast.Call, file: File) -> bool:
    """A condition asks how many processes there are, or whose a device of the loop is."""
    for parent, child in inside(call, file):
        tests = [parent.test] if isinstance(parent, ast.If | ast.IfExp) else []
        if isinstance(parent, ast.For):
            tests += [at.test for at in parent.body if isinstance(at, ast.If) and at is not child]
        tests += [test for one in getattr(parent, "generators", ()) for test in one.ifs]
        if any(_asks_whose(test) for test in tests):
            return True
    return False


def _asks_whose(test: ast.expr) -> bool:
    return any(word in ast.unparse(test) for word in ("process_count", "process_index", "local_devices"))
