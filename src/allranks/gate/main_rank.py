"""Implement ``@allranks.main_rank``: rank 0 runs the function, and every rank gets its result or exception."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar, overload

from allranks.world.detect import current

P = ParamSpec("P")
T = TypeVar("T")


@overload
def main_rank(fn: Callable[P, T], /) -> Callable[P, T]: ...
@overload
def main_rank(*, timeout: float | None = None) -> Callable[[Callable[P, T]], Callable[P, T]]: ...
def main_rank(
    fn: Callable[P, T] | None = None, /, *, timeout: float | None = None
) -> Callable[P, T] | Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a function that runs only on rank 0; **every rank must call it**, and gets its result or exception.

    Use it as ``@main_rank`` or ``@main_rank(timeout=3600)``. ``timeout`` is how many seconds the other ranks wait for
    rank 0 (default: the world's timeout). The result must be a JSON value or bytes. On ranks > 0 an exception arrives
    as RemoteError with rank 0's traceback. A collective inside the function raises CollectiveOnOneRank at once, on
    every rank. In code that only one rank runs, the decorated function just calls the original one.
    """

    def decorate(inner: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(inner)
        def on_main(*args: P.args, **kwargs: P.kwargs) -> T:
            return current().run_on_main(inner, args, kwargs, timeout=timeout)

        return on_main

    return decorate if fn is None else decorate(fn)
