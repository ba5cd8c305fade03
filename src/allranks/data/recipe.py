"""Describe a data set as plain values, without opening anything."""

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
    """One source of a data set: its samples ``start`` to ``stop`` (None: to the last), and their transforms."""

    source: Source
    start: int = 0
    stop: int | None = None
    operations: tuple[Operation, ...] = ()
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Batching:
    """How samples are grouped into global batches: see ``Dataset.batch``."""

    global_batch: int
    tail: Tail = "pad"
    streams: int | None = None
    window: int | None = None


@dataclass(frozen=True, slots=True)
class Recipe:
    """The description of a data set: its parts, and the transforms that apply to the samples of all parts."""

    parts: tuple[Part, ...]
    seed: int = 0
    shuffled: bool = True
    stop: Stop = "first"
    operations: tuple[Operation, ...] = ()
    workers: int = 0
    packing: Packing | None = None
    column: str = "tokens"
    batching: Batching | None = None
