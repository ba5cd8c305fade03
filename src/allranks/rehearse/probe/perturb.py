"""Give this rank another clock and another order of folder listings, as hosts and file systems do. The seed decides."""

from __future__ import annotations

import datetime
import dis
import functools
import os
import random
import sys
import time
import types
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

# Ranks' clocks are up to so many seconds apart.
_CLOCKS = 120.0
# Who still reads the machine's clock: allranks, the frameworks and the standard library, which compare ranks' times.
_EXEMPT = (
    os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep,
    os.path.dirname(os.__file__) + os.sep,
)
_EXEMPT_PACKAGES = tuple(
    f"-packages{os.sep}{name}{os.sep}" for name in ("torch", "jax", "jaxlib", "orbax", "tensorstore")
)


def perturb(seed: int, rank: int) -> None:
    """Change the clock and the order of folder listings of this process."""
    chance = random.Random(f"{seed}/{rank}")
    _shift_clock(round(chance.uniform(-_CLOCKS, _CLOCKS), 3))
    _shuffle_listings(chance)


def _shift_clock(seconds: float) -> None:
    """Make the program's wall clocks wrong by ``seconds``. Clocks that measure durations do not change."""
    now, real = time.time, datetime.datetime

    def shift() -> float:
        """Return by how many seconds the clock is wrong for the caller's caller."""
        return seconds if _is_shifted(sys._getframe(2).f_code.co_filename) else 0.0

    time.time = lambda: now() + shift()
    time.time_ns = lambda: int((now() + shift()) * 1e9)
    for name in ("localtime", "gmtime"):
        setattr(time, name, _of_now(getattr(time, name), now, shift))
    form, local = time.strftime, time.localtime
    time.strftime = lambda text, *moment: form(text, *(moment or (local(now() + shift()),)))

    class Meta(type):
        def __instancecheck__(cls, one: Any) -> bool:
            return isinstance(one, real) if cls is Shifted else super().__instancecheck__(one)

        def __subclasscheck__(cls, one: type) -> bool:
            return issubclass(one, real) if cls is Shifted else super().__subclasscheck__(one)

    class Shifted(real, metaclass=Meta):  # type: ignore[misc, valid-type]
        def __new__(cls, *args: Any, **options: Any) -> Any:
            return real.__new__(real if cls is Shifted else cls, *args, **options)

        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return real.now(tz) + datetime.timedelta(seconds=shift())

        @classmethod
        def utcnow(cls) -> Any:
            return real.now(datetime.UTC).replace(tzinfo=None) + datetime.timedelta(seconds=shift())

        @classmethod
        def today(cls) -> Any:
            return real.now() + datetime.timedelta(seconds=shift())

    Shifted.__name__ = Shifted.__qualname__ = "datetime"
    Shifted.__module__ = "datetime"
    _replace_for_program(real, Shifted)


def _replace_for_program(real: type, shifted: type) -> None:
    """Let ``datetime.datetime`` be ``shifted`` for code that reads shifted clocks, and ``real`` for all other code.

    Compiled modules (pandas) need ``real``: they make classes from it, whose layout in memory they know. Also pickle.
    """

    class Module(types.ModuleType):
        @property
        def datetime(self) -> Any:
            """Return the class that the program has put here, or else the one for the caller."""
            present = vars(self)["datetime"]
            return shifted if present is real and _loads(sys._getframe(1)) else present

        @datetime.setter
        def datetime(self, other: Any) -> None:
            vars(self)["datetime"] = other

    datetime.__class__ = Module


def _loads(frame: FrameType) -> bool:
    """Return whether a line of code that reads shifted clocks loads the class, and not a C function that it calls."""
    operation = dis.opname[frame.f_code.co_code[frame.f_lasti]]
    return operation in ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM") and _is_shifted(frame.f_code.co_filename)


@functools.cache
def _is_shifted(file: str) -> bool:
    return not file.startswith((*_EXEMPT, "<")) and not any(package in file for package in _EXEMPT_PACKAGES)


def _of_now(original: Callable[..., Any], now: Callable[[], float], shift: Callable[[], float]) -> Callable[..., Any]:
    return lambda moment=None: original(now() + shift() if moment is None else moment)


def _shuffle_listings(chance: random.Random) -> None:
    """Make folder listings return another order. No order is promised, and each file system has its own."""
    listdir, scandir = os.listdir, os.scandir

    def shuffled(path: Any = ".") -> list[Any]:
        names = listdir(path)
        chance.shuffle(names)
        return names

    class Scan:
        def __init__(self, path: Any = ".") -> None:
            with scandir(path) as entries:
                self._entries = list(entries)
            chance.shuffle(self._entries)
            self._left = iter(self._entries)

        def __iter__(self) -> Iterator[Any]:
            return self

        def __next__(self) -> Any:
            return next(self._left)

        def __enter__(self) -> Scan:
            return self

        def __exit__(self, *_: object) -> None:
            self.close()

        def close(self) -> None:
            self._left = iter(())

    os.listdir, os.scandir = shuffled, Scan  # type: ignore[assignment]
