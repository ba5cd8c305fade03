"""Describe a data set as plain values, without opening anything."""

from __future__ import annotations

from dataclasses import dataclass

from allranks.data.base import Source
from allranks.data.mix import Stop
from allranks.data.pack import PackingOptions
from allranks.data.plan import Tail
from allranks.data.transform import FilterOperation, MapOperation

Operation = MapOperation | FilterOperation


@dataclass(frozen=True, slots=True)
class DatasetPart:
    """One source of a data set: its samples ``start`` to ``stop`` (None: to the last), and their transforms."""

    source: Source
    start: int = 0
    stop: int | None = None
    operations: tuple[Operation, ...] = ()
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """How samples are grouped into global batches: see ``Dataset.batch``."""

    global_batch: int
    tail: Tail = "pad"
    streams: int | None = None
    window: int | None = None


@dataclass(frozen=True, slots=True)
class RandomOptions:
    """How samples are drawn at random, with replacement: see ``Dataset.random``.

    ``samples``: how many an epoch has; None for as many as ``overlap`` leaves of the data.
    """

    samples: int | None
    overlap: int


@dataclass(frozen=True, slots=True)
class DatasetRecipe:
    """The description of a data set: its parts, and the transforms that apply to the samples of all parts."""

    parts: tuple[DatasetPart, ...]
    seed: int = 0
    shuffled: bool = True
    stop: Stop = "first"
    operations: tuple[Operation, ...] = ()
    workers: int = 0
    packing: PackingOptions | None = None
    column: str = "tokens"
    batching: BatchOptions | None = None
    drawing: RandomOptions | None = None
