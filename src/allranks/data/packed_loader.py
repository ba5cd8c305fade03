"""The loader of packed rows: nobody knows how many steps there are before all is tokenized, so the ranks agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from allranks.data.ahead import Ahead
from allranks.data.batch import Batch
from allranks.data.ledger import Sum, planned_lane
from allranks.data.pack import Carry
from allranks.data.packed import Group, PackedTaken
from allranks.data.plan import Plan
from allranks.data.snapshot import Resume, Snapshot
from allranks.errors import DataError, LedgerMismatch
from allranks.world.base import World
