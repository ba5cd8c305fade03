"""Record random numbers: what the program draws, and what it seeds its generators with.

Only calls of the program itself are recorded, in its main thread.
"""

from __future__ import annotations

import functools
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from allranks.agent import load
from allranks.rehearse.probe.record import Recorder, is_main_thread
from allranks.rehearse.probe.saves import fingerprint

imports = load("allranks_agent_imports")

_DRAWS = {
    "torch": (
        "randn",
        "rand",
        "randint",
        "randn_like",
        "rand_like",
        "randint_like",
        "bernoulli",
        "normal",
        "multinomial",
    ),
    "numpy.random": (
        "normal",
        "rand",
        "randn",
        "randint",
        "uniform",
        "random",
        "standard_normal",
        "choice",
        "binomial",
    ),
    "jax.random": (
        *("normal", "uniform", "bernoulli", "randint", "categorical", "gumbel", "truncated_normal", "choice"),
        *("exponential", "laplace", "gamma", "beta", "dirichlet", "poisson", "rademacher", "bits"),
    ),
}
_SEEDS = {
    "torch": ("manual_seed",),
    "numpy.random": ("seed", "default_rng"),
    "random": ("seed",),
    "jax.random": ("PRNGKey", "key"),
}
# How many draws of one line are recorded, and the fewest elements of one.
_MOST, _FEWEST = 24, 2


class DrawRecorder:
    """The wrappers of one process."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._counts: Counter[tuple[str, int]] = Counter()
        self._process = os.getpid()
        self._traced: list[dict[str, int]] = []

    def attach(self) -> None:
        for names, wrapper in ((_DRAWS, self._drawing), (_SEEDS, self._seeding)):
            for module, functions in names.items():
                imports.after_import(module, functools.partial(self._watch, functions, wrapper))

    def _watch(self, functions: Any, wrapper: Callable[..., Any], module: Any) -> None:
        for name in functions:
            if (original := getattr(module, name, None)) is not None:
                setattr(module, name, wrapper(original, f"{module.__name__}.{name}"))

    def use(self, name: str) -> None:
        """Note that the function that is being traced uses something: a random function, or its device's number."""
        if self._traced:
            self._traced[-1].setdefault(name, self._recorder.place())

    @contextmanager
    def tracing(self) -> Iterator[dict[str, int]]:
        """Yield what a traced function uses, each with its line, as long as the ``with`` block runs."""
        self._traced.append({})
        try:
            yield self._traced[-1]
        finally:
            self._traced.pop()

    def _drawing(self, original: Callable[..., Any], name: str) -> Callable[..., Any]:
        is_compiling = _compiling()

        @functools.wraps(original)
        def draw(*args: Any, **options: Any) -> Any:
            if is_compiling():
                return original(*args, **options)
            result = original(*args, **options)
            if self._traced:
                self.use(name)
            elif self._is_of_program(sys._getframe(1)):
                self._record(name, result)
            return result

        return draw

    def _record(self, name: str, result: Any) -> None:
        shape = tuple(getattr(result, "shape", ()))
        place = self._recorder.place()
        self._counts[name, place] += 1
        count = self._counts[name, place]
        if shape and shape[0] >= _FEWEST and count <= _MOST and (known := fingerprint(result)) is not None:
            self._recorder.write(
                "draw",
                place=place,
                name=name,
                count=count,
                shape=list(shape),
                digest=f"{known.total:x}-{known.parity:x}",
            )

    def _seeding(self, original: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(original)
        def seed(*args: Any, **options: Any) -> Any:
            value = args[0] if args else next(iter(options.values()), None)
            if (type(value) is int or value is None) and self._is_of_program(sys._getframe(1)):
                place = self._recorder.place()
                self._counts[name, place] += 1
                self._recorder.write("seed", place=place, name=name, count=self._counts[name, place], value=value)
            return original(*args, **options)

        return seed

    def _is_of_program(self, frame: Any) -> bool:
        return self._recorder.is_users(frame.f_code.co_filename) and is_main_thread() and os.getpid() == self._process


def _compiling() -> Callable[[], bool]:
    """Return torch's function that says whether it is compiling the caller, which then must not be recorded."""
    compiler = getattr(sys.modules.get("torch"), "compiler", None)
    return getattr(compiler, "is_compiling", None) or (lambda: False)
