"""Describe a data set by values: nothing is opened."""

from __future__ import annotations

from dataclasses import dataclass

from allranks.data.base import Source
from allranks.data.mix import Stop
from allranks.data.pack import Packing
from allranks.data.plan import Tail
from allranks.data.transform import Filter, Map

Operation = Map | Filter


@dataclass(frozen=True, slots=True)
class Part:
    """A source of a data set: its samples ``start`` to ``stop`` (None: the last), and their transforms."""

    source: Source
    start: int = 0
    stop: int | None = None
    operations: tuple[Operation, ...] = ()
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Batching:
    """How samples make global batches: see ``Dataset.batch``."""

    global_batch: int
    tail: Tail = "pad"
    streams: int | None = None
    window: int | None = None


@dataclass(frozen=True, slots=True)
class Recipe:
    """A data set: its parts, and the transforms of the samples of all of them."""

    parts: tuple[Part, ...]
    seed: int = 0
    shuffled: bool = True
    stop: Stop = "first"
    operations: tuple[Operation, ...] = ()
    workers: int = 0
    packing: Packing | None = None
    column: str = "tokens"
    batching: Batching | None = None
