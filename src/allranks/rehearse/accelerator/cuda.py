"""Answer as torch.cuda does on a machine with LOCAL_WORLD_SIZE devices; map autocast and torch.compile to the CPU.

torch.compile does not compile what runs on CUDA: a kernel for the CPU would show nothing.
"""

from __future__ import annotations

import contextlib
import functools
import os
import resource
import sys
from collections import defaultdict
from collections.abc import Callable
from types import FrameType, SimpleNamespace
from typing import Any

from allranks.rehearse.accelerator import names, streams
from allranks.rehearse.accelerator.generators import Generators
from allranks.rehearse.accelerator.state import STATE


def attach(torch: Any, generators: Generators) -> None:
    """Replace the functions of torch.cuda, torch.accelerator and their parts."""
    answers = _Answers(torch)
    for module, constants in names.CONSTANTS.items():
        for name, value in constants.items():
            _replace(module, name, _constant(f"{module}.{name}", value))
    _set_all("torch.cuda", streams.REPLACEMENTS)
    _set_all("torch.cuda", generators.functions())
    _set_all("torch.cuda", answers.functions())
    _set_all("torch.cuda.memory", _memory())
    _set_all("torch.accelerator", answers.of_accelerator())
    torch.cuda._is_in_bad_fork = lambda: STATE.is_bad_fork
    torch.cuda._lazy_call = lambda call, **_: call()
    torch.version.cuda = names.CUDA_VERSION
    torch._C._set_sdp_use_math = functools.partial(lambda original, _: original(True), torch._C._set_sdp_use_math)
    for kind in ("Byte", "Char", "Short", "Int", "Long", "Half", "Float", "Double", "BFloat16", "Bool"):
        setattr(torch.cuda, f"{kind}Tensor", getattr(torch, f"{kind}Tensor"))
    _map_autocast(torch)
    _map_compile(torch)


def _set_all(module: str, functions: dict[str, Any]) -> None:
    """Set functions of a module. Each gets an object of its own: torch.compile knows functions by identity."""
    for name, function in functions.items():
        is_function = callable(function) and not isinstance(function, type)
        _replace(module, name, _new_function(function, name) if is_function else function)


def _new_function(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        return function(*args, **options)

    call.__name__ = name
    return call


def _replace(module: str, name: str, function: Any) -> None:
    """Set an attribute of a module, and of the modules of torch that have imported it from there."""
    owner = sys.modules.get(module)
    if owner is None:
        return
    original = getattr(owner, name, None)
    setattr(owner, name, function)
    for key, other in list(sys.modules.items()):
        if original is not None and key.startswith("torch.") and vars(other).get(name) is original:
            setattr(other, name, function)


def _constant(label: str, value: Any) -> Callable[..., Any]:
    def answer(*_: Any, **__: Any) -> Any:
        STATE.note(label.rpartition(".")[0])
        return value

    answer.__name__ = label.rpartition(".")[2]
    return answer


def _is_for_compiler() -> bool:
    """Return whether a module of torch.compile asks; it is at most four calls away."""
    frame: FrameType | None = sys._getframe(2)
    for _ in range(3):
        if frame is not None and frame.f_globals.get("__name__", "").startswith(names.COMPILERS):
            return True
        frame = frame.f_back if frame is not None else None
    return False


class _Answers:
    """The functions that know the current device."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def index(self, device: Any) -> int:
        """Return the number of a device: None and ``"cuda"`` are the current one."""
        if isinstance(device, str):
            device = self._torch.device(device)
        number = getattr(device, "index", device)
        if number is None:
            return STATE.current()
        if number >= 0:
            STATE.check(number)
        return int(number)

    def functions(self) -> dict[str, Any]:
        """Return the replacements of functions of torch.cuda, by name."""
        return {
            "is_available": self._is_available,
            "device_count": self._count,
            "current_device": self._current,
            "set_device": self._choose,
            "device": self._device_context(),
            "get_device_properties": lambda device=None: self._properties(self.index(device)),
            "cudart": _Runtime,
            "is_initialized": lambda: STATE.is_used or STATE.is_chosen,
        }

    def of_accelerator(self) -> dict[str, Any]:
        """Return the replacements of functions of torch.accelerator, by name."""
        return {
            "is_available": self._is_available,
            "device_count": self._count,
            "current_accelerator": lambda *_, **__: self._torch.device("cuda") if self._count() else None,
            **dict.fromkeys(["current_device_index", "current_device_idx"], self._current),
            **dict.fromkeys(["set_device_index", "set_device_idx"], self._choose),
            "device_index": self._device_context(),
            **{name: streams.REPLACEMENTS[name] for name in ("current_stream", "set_stream")},
        }

    def _is_available(self) -> bool:
        return self._count() > 0

    def _count(self) -> int:
        return 0 if _is_for_compiler() else STATE.count()

    def _current(self) -> int:
        STATE.note("torch.cuda")
        return STATE.current()

    def _choose(self, device: Any) -> None:
        STATE.note("torch.cuda")
        if (number := self.index(device)) >= 0:
            STATE.choose(number)

    def _device_context(self) -> Any:
        answers = self

        class Device(contextlib.ContextDecorator):
            """The replacement of ``torch.cuda.device``: it makes a device the current one in a ``with`` block."""

            def __init__(self, device: Any) -> None:
                self.idx, self.prev_idx = answers.index(device), -1

            def __enter__(self) -> None:
                self.prev_idx = STATE.current()
                answers._choose(self.idx)

            def __exit__(self, *_: object) -> None:
                STATE.choose(self.prev_idx)

        return Device

    def _properties(self, index: int) -> Any:
        return SimpleNamespace(**names.PROPERTIES, uuid=f"GPU-{index:08d}-0000-0000-0000-000000000000")


class _Runtime:
    """The replacement of ``torch.cuda.cudart()``: every function succeeds and does nothing."""

    def __getattr__(self, name: str) -> Callable[..., int]:
        return lambda *_: 0


def _memory() -> dict[str, Any]:
    """Return the functions of torch.cuda.memory that return figures: those of this process."""

    def now(*_: Any) -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def most(*_: Any) -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def stats(*_: Any) -> Any:
        return defaultdict(int, {"allocated_bytes.all.current": now(), "allocated_bytes.all.peak": most()})

    return {
        **dict.fromkeys(names.MEMORY_NOW, now),
        **dict.fromkeys(names.MEMORY_MOST, most),
        "mem_get_info": lambda *_: (names.MEMORY - now(), names.MEMORY),
        **dict.fromkeys(["memory_stats", "memory_stats_as_nested_dict"], stats),
    }


def _map_autocast(torch: Any) -> None:
    """Let ``autocast("cuda")`` also cast on the CPU, to the same type."""
    autocast = torch.amp.autocast_mode.autocast
    begin, enter, leave = autocast.__init__, autocast.__enter__, autocast.__exit__

    @functools.wraps(begin)
    def init(one: Any, device_type: Any, *args: Any, **options: Any) -> None:
        begin(one, device_type, *args, **options)
        one._allranks_cpu = None
        if device_type == "cuda":
            STATE.note("torch.autocast('cuda')")
            one._allranks_cpu = autocast("cpu", one.fast_dtype, one._enabled, one._cache_enabled)

    @functools.wraps(enter)
    def enter_both(one: Any) -> Any:
        if one._allranks_cpu is not None:
            enter(one._allranks_cpu)
        return enter(one)

    @functools.wraps(leave)
    def leave_both(one: Any, *error: Any) -> Any:
        result = leave(one, *error)
        if one._allranks_cpu is not None:
            leave(one._allranks_cpu, *error)
        return result

    autocast.__init__, autocast.__enter__, autocast.__exit__ = init, enter_both, leave_both


def _map_compile(torch: Any) -> None:
    """Replace torch.compile. Arguments are checked and modules wrapped as ever; what runs is decided at each call."""
    original = torch.compile

    @functools.wraps(original)
    def compile_(model: Any = None, **options: Any) -> Any:
        if model is None:
            return lambda one: compile_(one, **options)
        if sys._getframe(1).f_globals.get("__name__", "").startswith("torch."):
            return original(model, **options)  # what torch compiles for itself does not run otherwise
        compiled = original(model, **options)
        if compiled is model:
            return model
        if isinstance(model, torch.nn.Module):
            compiled.forward = _eager_on_cuda(compiled.forward, model)
            return compiled
        return functools.wraps(model)(_eager_on_cuda(compiled, model))

    torch.compile = compile_


def _eager_on_cuda(compiled: Callable[..., Any], eager: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        if not STATE.is_used:
            return compiled(*args, **options)
        STATE.note("torch.compile (eager)")
        return eager(*args, **options)

    return call
