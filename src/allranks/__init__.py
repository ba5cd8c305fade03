"""allranks: multi-process training that is correct, and proves it."""

import typing as _typing
from importlib import import_module as _import_module

from allranks.arrays.base import Leaf as Leaf
from allranks.arrays.batch import BatchPlan as BatchPlan
from allranks.arrays.detect import describe as describe
from allranks.data.rows import global_batch as global_batch
from allranks.gate.collective import collective as collective
from allranks.gate.log import log as log
from allranks.gate.log import print as print  # noqa: A004
from allranks.gate.main_rank import main_rank as main_rank
from allranks.gate.writer import RankWriter as RankWriter
from allranks.hang.start import init as init
from allranks.world.base import World as World
from allranks.world.detect import current as current
from allranks.world.simulated import SimulatedWorld as SimulatedWorld

if _typing.TYPE_CHECKING:
    from allranks.checkpoint.checkpointer import Checkpointer as Checkpointer
    from allranks.consistency.tree import tree_digest as tree_digest
    from allranks.consistency.verify import verify as verify
    from allranks.data.dataset import Dataset as Dataset
    from allranks.data.shard import shard as shard
    from allranks.gate.lockstep.face import lockstep as lockstep
    from allranks.readiness.preflight import preflight as preflight

# These are not light (they need NumPy, or are many files): they are imported when they are first asked for.
_LATE = {
    "Checkpointer": "allranks.checkpoint.checkpointer",
    "Dataset": "allranks.data.dataset",
    "lockstep": "allranks.gate.lockstep.face",
    "preflight": "allranks.readiness.preflight",
    "tree_digest": "allranks.consistency.tree",
    "verify": "allranks.consistency.verify",
    "shard": "allranks.data.shard",
}


def __getattr__(name: str) -> object:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(_import_module(_LATE[name]), name)
    globals()[name] = found
    return found
