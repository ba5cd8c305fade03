"""The random generators of CUDA devices: CPU generators of their own, which root modules draw from while they run.

A program may seed the CPU alike on all ranks, and its CUDA device by rank. So there are two streams of numbers here as
well. Factory functions on a CUDA device draw from the device's generator. Operations that take no generator, such as
dropout, draw from torch's default generator; so while a module runs, that one has the state of the device's generator.
"""

from __future__ import annotations

import threading
from typing import Any

from allranks.rehearse.accelerator.state import STATE


class Generators:
    """The generators of all devices of one process."""

    def __init__(self, torch: Any) -> None:
        self._torch, self._make = torch, torch.Generator
        self._by_device: dict[int, Any] = {}
        self._depth = 0
        self._kept: Any = None

    def current(self) -> Any:
        """Return the generator of the current device."""
        return self.of(STATE.current())

    def of(self, index: int) -> Any:
        """Return the generator of a device. It begins with the seed of the CPU's generator, as CUDA's does."""
        if index not in self._by_device:
            self._by_device[index] = self._make().manual_seed(self._torch.initial_seed())
        return self._by_device[index]

    def attach(self) -> None:
        """Let the root modules of the main thread draw from the current device's generator while they run."""
        module = self._torch.nn.modules.module
        module.register_module_forward_pre_hook(self._enter)
        module.register_module_forward_hook(self._leave, always_call=True)

    def _enter(self, *_: Any) -> None:
        if not self._is_root_thread():
            return
        self._depth += 1
        if self._depth == 1 and STATE.is_used:
            default, generator = self._torch.default_generator, self.current()
            self._kept = default.get_state(), generator
            default.set_state(generator.get_state())

    def _leave(self, *_: Any) -> None:
        if not self._is_root_thread() or not self._depth:
            return
        self._depth -= 1
        if not self._depth and self._kept is not None:
            default = self._torch.default_generator
            state, generator = self._kept
            generator.set_state(default.get_state())
            default.set_state(state)
            self._kept = None

    def _is_root_thread(self) -> bool:
        return threading.current_thread() is threading.main_thread()

    # ---- the functions of torch.cuda ----

    def functions(self) -> dict[str, Any]:
        """Return the replacements of functions of torch.cuda that seed generators, and that save their states."""
        return {
            "manual_seed": lambda seed: self._seed(STATE.current(), int(seed)),
            "manual_seed_all": self._seed_all,
            "seed": lambda: self._seed(STATE.current(), self._make().seed()),
            "seed_all": lambda: self._seed_all(self._make().seed()),
            "initial_seed": lambda: self.current().initial_seed(),
            "get_rng_state": lambda device="cuda": self._drawn(self._index(device)).get_state(),
            "get_rng_state_all": lambda: [self._drawn(index).get_state() for index in range(STATE.count())],
            "set_rng_state": lambda state, device="cuda": self._set(self._index(device), state),
            "set_rng_state_all": self._set_all,
            "default_generators": _ByDevice(self),
        }

    def _index(self, device: Any) -> int:
        number = device if isinstance(device, int) else self._torch.device(device).index
        return STATE.current() if number is None else number

    def _drawn(self, index: int) -> Any:
        """Return the generator from which operations on this device draw now."""
        is_active = self._kept is not None and self._kept[1] is self.of(index)
        return self._torch.default_generator if is_active else self.of(index)

    def _seed(self, index: int, seed: int) -> None:
        self._drawn(index).manual_seed(seed)

    def _seed_all(self, seed: Any) -> None:
        for index in range(STATE.count()):
            self._seed(index, int(seed))

    def _set(self, index: int, state: Any) -> None:
        STATE.check(index)
        self._drawn(index).set_state(state)

    def _set_all(self, states: Any) -> None:
        for index, state in enumerate(states):
            self._set(index, state)


class _ByDevice:
    """The replacement of ``torch.cuda.default_generators``."""

    def __init__(self, generators: Generators) -> None:
        self._generators = generators

    def __getitem__(self, index: int) -> Any:
        return self._generators.of(range(STATE.count())[index])

    def __len__(self) -> int:
        return STATE.count()
