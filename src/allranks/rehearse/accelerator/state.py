"""Keep the state of the accelerator of one process: the current device, and the names that were mapped."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any


class State:
    """The accelerator of one process, which has ``count()`` devices. All answers are those of a CUDA machine."""

    def __init__(self) -> None:
        self.mapped: dict[str, None] = {}
        self.is_used = False
        self.is_bad_fork = False
        self.is_chosen = False
        self._devices: set[int] = set()
        self._thread = threading.local()
        self._write: Callable[..., None] | None = None
        self._when_used: list[Callable[[], object]] = []
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        self.is_bad_fork = self.is_used

    def record(self, write: Callable[..., None]) -> None:
        """Pass what is mapped from now on, and what was mapped so far, to ``write``."""
        self._write = write
        for name in self.mapped:
            write("replaced", place=0, name=name)

    def when_used(self, action: Callable[[], object]) -> None:
        """Call ``action`` once a device is used; a program that uses none is left alone."""
        self._when_used.append(action)

    def note(self, name: str) -> None:
        """Note that the program used a name that is mapped."""
        if name not in self.mapped:
            self.mapped[name] = None
            if self._write is not None:
                self._write("replaced", name=name)

    def count(self) -> int:
        """Return how many devices this process sees: LOCAL_WORLD_SIZE, or fewer with CUDA_VISIBLE_DEVICES."""
        return len(self._visible())

    def _visible(self) -> list[str]:
        names = [str(number) for number in range(int(os.environ.get("LOCAL_WORLD_SIZE", "1")))]
        listed = os.environ.get("CUDA_VISIBLE_DEVICES")
        if listed is None:
            return names
        visible = []
        for name in listed.split(","):
            if name.strip() not in names:
                break  # as CUDA does: the list ends at the first device that does not exist
            visible.append(name.strip())
        return visible

    def current(self) -> int:
        """Return the current device of this thread."""
        return int(getattr(self._thread, "device", 0))

    def choose(self, index: int) -> None:
        """Make a device the current one of this thread."""
        self.check(index)
        self._thread.device = index
        self.is_chosen = True

    def check(self, index: int) -> None:
        """Raise as CUDA does if this process cannot use the device with this number."""
        if self.is_bad_fork:
            raise RuntimeError(
                "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the"
                " 'spawn' start method"
            )
        if not 0 <= index < self.count():
            devices = f"{self.count()} device{'' if self.count() == 1 else 's'}"
            raise RuntimeError(f"CUDA error: invalid device ordinal: this rank sees {devices}, found cuda:{index}")

    def use(self, index: int | None, name: str) -> None:
        """Note that tensors are put on a device (None: the current one) by ``name``."""
        number = self.current() if index is None else index
        self.note(name)
        if number in self._devices and not self.is_bad_fork:
            return
        self.check(number)
        self._begin()
        self._devices.add(number)
        self._event("device", device=self._visible()[number], index=number, host=os.environ.get("ALLRANKS_HOST", ""))

    def joined(self) -> None:
        """Note that this process joined a group of NCCL."""
        self._begin()
        self._event("nccl")

    def _begin(self) -> None:
        if not self.is_used:
            self.is_used = True
            for action in self._when_used:
                action()

    def _event(self, kind: str, **data: Any) -> None:
        if self._write is not None:
            self._write(kind, **data)


STATE = State()
