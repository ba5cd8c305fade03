"""Record random numbers: what the program draws, and what it seeds its generators with.

Only calls of the program itself are recorded, in the main thread of a rank or of a worker of its loaders. Generators of
numpy and of the standard library that the program makes are recorded as well.
"""

from __future__ import annotations

import functools
import math
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
# Functions of the module random, whose values are single numbers, and methods of its generators.
_NUMBERS = (
    "random",
    "randint",
    "randrange",
    "uniform",
    "choice",
    "gauss",
    "normalvariate",
    "betavariate",
    "triangular",
)
# By class of numpy.random: its methods that draw.
_GENERATORS = {
    "Generator": ("normal", "random", "integers", "uniform", "standard_normal", "choice", "binomial", "beta"),
    "RandomState": (*_DRAWS["numpy.random"], "random_sample", "beta"),
}
_SEEDS = {
    "torch": ("manual_seed",),
    "numpy.random": ("seed",),
    "random": ("seed",),
    "jax.random": ("PRNGKey", "key"),
}
# How many draws of arrays, and of single numbers, of one line are recorded, and the fewest elements of an array.
_MOST, _MOST_NUMBERS, _FEWEST = 24, 96, 2


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

        imports.after_import("random", self._watch_random)
        imports.after_import("numpy.random", self._watch_generators)

    def _watch_random(self, module: Any) -> None:
        """Watch the functions of the module random, and the generators that the program makes by random.Random."""
        self._watch(_NUMBERS, self._drawing, module)
        for name in _NUMBERS:
            setattr(module.Random, name, self._drawing(getattr(module.Random, name), f"random.Random.{name}"))
        seed = module.Random.seed

        @functools.wraps(seed)
        def seeding(one: Any, a: Any = None, *args: Any, **options: Any) -> None:
            frame = sys._getframe(1)
            self._record_seed("random.Random", a, frame.f_back if frame.f_code.co_name == "__init__" else frame)
            seed(one, a, *args, **options)

        module.Random.seed = seeding

    def _watch_generators(self, module: Any) -> None:
        """Let the program get recorded generators of numpy: from default_rng, Generator and RandomState."""
        for kind, methods in _GENERATORS.items():
            setattr(module, kind, self._recorded(getattr(module, kind), methods))
        make, kind = module.default_rng, module.Generator

        @functools.wraps(make)
        def default_rng(seed: Any = None) -> Any:
            made, frame = make(seed), sys._getframe(1)
            self._record_seed("numpy.random.default_rng", seed, frame)
            return kind(made.bit_generator) if made is not seed and self._is_of_program(frame) else made

        module.default_rng = default_rng

    def _recorded(self, base: Any, methods: tuple[str, ...]) -> Any:
        """Return a subclass of a class of generators whose methods record. Each generator is an instance of it."""

        class Meta(type):
            def __instancecheck__(cls, one: Any) -> bool:
                return isinstance(one, base)

        def init(one: Any, *args: Any, **options: Any) -> None:
            base.__init__(one, *args, **options)
            self._record_seed(f"numpy.random.{base.__name__}", args[0] if args else options.get("seed"))

        names = {"__doc__": base.__doc__, "__module__": base.__module__, "__qualname__": base.__qualname__}
        wrapped = {name: self._drawing(getattr(base, name), f"{base.__name__}.{name}") for name in methods}
        return Meta(base.__name__, (base,), {**names, **wrapped, "__init__": init})

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
        """Record a draw, if it is not one of too many at this line. ``shape`` is [] for one number."""
        shape = list(getattr(result, "shape", ()))
        place = self._recorder.place()
        self._counts[name, place] += 1
        count = self._counts[name, place]
        is_number = math.prod(shape) == 1
        if count > (_MOST_NUMBERS if is_number else _MOST) or not (is_number or shape[0] >= _FEWEST):
            return
        if is_number:
            shape, digest = [], _number(result)
        else:
            known = fingerprint(result)
            digest = f"{known.total:x}-{known.parity:x}" if known else ""
        if digest:
            worker = _worker()
            self._recorder.write("draw", place=place, name=name, count=count, shape=shape, digest=digest, worker=worker)

    def _seeding(self, original: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(original)
        def seed(*args: Any, **options: Any) -> Any:
            self._record_seed(name, args[0] if args else next(iter(options.values()), None), sys._getframe(1))
            return original(*args, **options)

        return seed

    def _record_seed(self, name: str, value: Any, frame: Any = None) -> None:
        if (type(value) is int or value is None) and self._is_of_program(frame or sys._getframe(2)):
            place = self._recorder.place()
            self._counts[name, place] += 1
            self._recorder.write("seed", place=place, name=name, count=self._counts[name, place], value=value)

    def _is_of_program(self, frame: Any) -> bool:
        is_here = os.getpid() == self._process or _worker() >= 0
        return is_here and self._recorder.is_users(frame.f_code.co_filename) and is_main_thread()


def _number(value: Any) -> str:
    """Return the text of one number that was drawn, "" for other values: the choice of an object has no number."""
    try:
        return repr(float(value))
    except (TypeError, ValueError):
        return ""


def _worker() -> int:
    """Return the number of this worker of a torch loader, or -1 if this process is none."""
    workers = sys.modules.get("torch.utils.data._utils.worker")
    info = workers.get_worker_info() if workers is not None else None
    return -1 if info is None else int(info.id)


def _compiling() -> Callable[[], bool]:
    """Return torch's function that says whether it is compiling the caller, which then must not be recorded."""
    compiler = getattr(sys.modules.get("torch"), "compiler", None)
    return getattr(compiler, "is_compiling", None) or (lambda: False)
