"""Implement ``RankWriter``: an object (TensorBoard, wandb) that exists only on rank 0, and that all ranks may call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from allranks.world.base import World
from allranks.world.detect import current
from allranks.world.guards.detect import one_rank


class RankWriter:
    """A proxy, on every rank, for the object that ``make()`` returns on rank 0.

    Examples:
        >>> writer = RankWriter(lambda: SummaryWriter("runs"))
        >>> writer.add_scalar("loss", loss.mean(), step)

    On rank 0, calls and assignments act on the object. On other ranks they do nothing and return None, also for
    attributes of attributes (``run.summary["best"] = 1``). Arguments are evaluated on every rank, so the reduction of a
    sharded metric in an argument runs on all ranks, as it must. Only rank 0 writes, and a collective in the write
    raises CollectiveOnOneRank. An exception of the write is raised on rank 0 only. For a result or an error that every
    rank needs, use ``world.on_main``.

    ``world`` is by default the world that ``allranks.init()`` returned.
    """

    def __init__(self, make: Callable[[], Any], *, world: World | None = None) -> None:
        is_main = (world or current()).is_main
        object.__setattr__(self, "_target", _on_one_rank(make)() if is_main else _NOTHING)

    def __getattr__(self, name: str) -> Any:
        _refuse_protocol(self, name)
        found = getattr(self._target, name)
        return _on_one_rank(found) if callable(found) else found

    def __setattr__(self, name: str, value: object) -> None:
        _on_one_rank(self._target.__setattr__)(name, value)

    def __getitem__(self, key: Any) -> Any:
        return self._target[key]

    def __setitem__(self, key: Any, value: object) -> None:
        _on_one_rank(self._target.__setitem__)(key, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _on_one_rank(self._target)(*args, **kwargs)

    def __enter__(self) -> RankWriter:
        _on_one_rank(self._target.__enter__)()
        return self

    def __exit__(self, *error: Any) -> Any:
        return _on_one_rank(self._target.__exit__)(*error)

    def __repr__(self) -> str:
        return f"RankWriter({self._target!r})"


class _IgnoresCalls:
    """The object on the other ranks: it accepts every call, does nothing, and is false."""

    def __getattr__(self, name: str) -> Any:
        _refuse_protocol(self, name)
        return self

    def __setattr__(self, name: str, value: object) -> None:
        pass

    def __getitem__(self, key: Any) -> _IgnoresCalls:
        return self

    def __setitem__(self, key: Any, value: object) -> None:
        pass

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __enter__(self) -> _IgnoresCalls:
        return self

    def __exit__(self, *error: Any) -> None:
        pass

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "nothing on this rank"


_NOTHING = _IgnoresCalls()


def _on_one_rank(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``call`` wrapped as code that only rank 0 runs; a call of ``_NOTHING`` is returned unchanged."""
    if call is _NOTHING or getattr(call, "__self__", None) is _NOTHING:
        return call

    @functools.wraps(call)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with one_rank(0):
            return call(*args, **kwargs)

    return wrapper


def _refuse_protocol(self: object, name: str) -> None:
    """Raise AttributeError for special names, so that ``copy`` and ``pickle`` do not assume these methods."""
    if name.startswith("__") or name == "_target":
        raise AttributeError(f"{type(self).__name__} has no {name}")
