"""Define the input of ``save`` (settings, order, metrics, ``extra``) and its result (the handle)."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

from allranks.arguments import expect, is_count, is_positive
from allranks.checkpoint.per_rank import RankChoices
from allranks.digest import NAMES as DIGESTS
from allranks.errors import AllranksError, BadArgument, BarrierTimeout, CannotStore


@dataclass(frozen=True, slots=True)
class CommittedSave:
    """A save that is durable and complete.

    ``bytes``: the size of all ranks' files. ``copied``: the bytes of host memory for this rank's copies, which are kept
    for the next save. ``seconds``: from the call of ``save`` to the commit. ``blocked``: the seconds until ``save``
    returned on this rank.
    """

    step: int
    path: str
    bytes: int
    seconds: float
    blocked: float
    copied: int


class SaveHandle:
    """The result of ``save``. ``blocked``: the seconds that ``save`` took to return.

    Waiting is not collective: any rank may wait, at any time, any number of times.
    """

    def __init__(self, step: int) -> None:
        self.step = step
        self.blocked = 0.0
        self._ended = threading.Event()
        self._result: CommittedSave | BaseException | None = None

    def done(self) -> bool:
        """Return whether the save has ended, with success or not."""
        return self._ended.is_set()

    def wait(self, timeout: float | None = None) -> CommittedSave:
        """Wait for the end of the save. Return the commit, or raise the error of the save, the same on every rank.

        Raises BarrierTimeout if the save takes longer than ``timeout`` seconds.
        """
        if not self._ended.wait(timeout):
            raise BarrierTimeout(
                f"save of step {self.step}: the save has not ended after {timeout:g} s. Call wait() "
                "again, or with a longer timeout.",
                step=self.step,
            )
        assert self._result is not None
        if isinstance(self._result, BaseException):
            raise self._result
        return self._result

    def set_result(self, result: CommittedSave | BaseException) -> None:
        """Set the result of the save. Only the save calls this."""
        self._result = result
        self._ended.set()


@dataclass(frozen=True, slots=True)
class SaveSettings:
    """The settings with which a Checkpointer saves.

    ``integrity``: the name of the digest.
    ``memory``: the most bytes of host memory for copies; None: as much as this rank's part takes.
    ``timeout``: the seconds from the call of ``save`` to the commit.
    ``choices``: what is saved of leaves that differ over the ranks. ``items``: each of these items gets its own files.
    ``compresses``: chunks are compressed. ``durable``: a save survives its hosts, and is reported as saved.
    """

    integrity: str = "xxh3-128"
    memory: int | None = None
    timeout: float = 1800.0
    copy_threads: int = 2
    choices: RankChoices = field(default_factory=RankChoices)
    items: tuple[str, ...] = ()
    compresses: bool = False
    durable: bool = True

    def __post_init__(self) -> None:
        expect(self.integrity in DIGESTS, "integrity", self.integrity, f"one of {', '.join(DIGESTS)}")
        expect(self.memory is None or is_count(self.memory), "memory", self.memory, "bytes, an int above 0, or None")
        expect(is_positive(self.timeout), "timeout", self.timeout, "seconds, a number above 0")


@dataclass(frozen=True, slots=True)
class SaveOrder:
    """One call of ``save``: the step, what to save beside the state, whether to replace the step, whether to wait.

    ``metrics``: as the program passed them (None: none), to be converted to numbers.
    ``refused``: the error if this rank cannot save; the other ranks must be informed of it.
    """

    step: int
    extra: Any
    metrics: Any
    replace: bool
    wait: bool
    refused: AllranksError | None = None


def convert_metrics(save_order: SaveOrder) -> SaveOrder:
    """Return the order with its metrics converted to numbers. If that fails, ``refused`` is the error."""
    try:
        return replace(save_order, metrics=metrics_as_floats({} if save_order.metrics is None else save_order.metrics))
    except (CannotStore, BadArgument) as error:
        return replace(save_order, metrics={}, refused=save_order.refused or error)


def metrics_as_floats(metrics: Any) -> dict[str, float]:
    """Return metrics as floats, given numbers or arrays with one element, of any framework.

    Raises CannotStore for a value that is not a number, BadArgument if ``metrics`` is not a mapping of names.
    """
    fits = isinstance(metrics, Mapping) and all(isinstance(name, str) for name in metrics)
    expect(fits, "metrics", metrics, "numbers by name: {'loss': 0.5}")
    numbers = {}
    for name, value in metrics.items():
        try:
            numbers[name] = float(value)
        except (TypeError, ValueError) as error:
            raise CannotStore(f"metric {name!r} is {value!r:.80}: expected a number ({error}).", leaf=name) from error
    return numbers


@runtime_checkable
class GatherableValue(Protocol):
    """A value in ``extra`` of which each rank holds a part."""

    def gathered(self) -> Any:
        """Return the complete value as JSON, equal on all ranks. **Every rank must call.**"""


def resolve_gatherables(extra: Any) -> Any:
    """Return ``extra`` with every GatherableValue in it replaced by its complete value. **Every rank must call.**

    All ranks must have the same number of GatherableValues.
    """
    if isinstance(extra, GatherableValue):
        return extra.gathered()
    if type(extra) is dict:
        found = {
            key: resolve_gatherables(extra[key]) for key in sorted(extra, key=str)
        }  # the ranks' dicts may have different orders
        return {key: found[key] for key in extra}
    if type(extra) in (list, tuple):
        return [resolve_gatherables(value) for value in extra]
    return extra
