"""allranks: multi-process training that is correct, and proves it."""

import typing as _typing
from importlib import import_module as _import_module

if _typing.TYPE_CHECKING:
    from allranks.arrays.base import Leaf as Leaf
    from allranks.arrays.batch import BatchPlan as BatchPlan
    from allranks.arrays.detect import describe as describe
    from allranks.checkpoint.checkpointer import Checkpointer as Checkpointer
    from allranks.consistency.tree import tree_digest as tree_digest
    from allranks.consistency.verify import verify as verify
    from allranks.data.dataset import Dataset as Dataset
    from allranks.data.rows import global_batch as global_batch
    from allranks.data.shard import shard as shard
    from allranks.gate.collective import collective as collective
    from allranks.gate.lockstep.face import lockstep as lockstep
    from allranks.gate.log import log as log
    from allranks.gate.log import print as print  # noqa: A004
    from allranks.gate.main_rank import main_rank as main_rank
    from allranks.gate.writer import RankWriter as RankWriter
    from allranks.hang.start import init as init
    from allranks.readiness.preflight import preflight as preflight
    from allranks.world.base import World as World
    from allranks.world.detect import current as current
    from allranks.world.simulated import SimulatedWorld as SimulatedWorld

# Where each public name is. All are imported when they are first asked for, so that `allranks check` does not pay for
# the world, nor a checkpoint for the data.
_LATE = {
    "BatchPlan": "allranks.arrays.batch",
    "Checkpointer": "allranks.checkpoint.checkpointer",
    "Dataset": "allranks.data.dataset",
    "Leaf": "allranks.arrays.base",
    "RankWriter": "allranks.gate.writer",
    "SimulatedWorld": "allranks.world.simulated",
    "World": "allranks.world.base",
    "collective": "allranks.gate.collective",
    "current": "allranks.world.detect",
    "describe": "allranks.arrays.detect",
    "global_batch": "allranks.data.rows",
    "init": "allranks.hang.start",
    "lockstep": "allranks.gate.lockstep.face",
    "log": "allranks.gate.log",
    "main_rank": "allranks.gate.main_rank",
    "preflight": "allranks.readiness.preflight",
    "print": "allranks.gate.log",
    "shard": "allranks.data.shard",
    "tree_digest": "allranks.consistency.tree",
    "verify": "allranks.consistency.verify",
}


def __getattr__(name: str) -> object:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(_import_module(_LATE[name]), name)
    globals()[name] = found
    return found
