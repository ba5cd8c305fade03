"""allranks: multi-process training that is correct, and shows it."""

import typing as _typing
from importlib import import_module as _import_module

if _typing.TYPE_CHECKING:
    from allranks import errors as errors
    from allranks.arrays.batch import BatchPlan as BatchPlan
    from allranks.arrays.detect import describe as describe
    from allranks.arrays.random_state import RandomState as RandomState
    from allranks.checkpoint.checkpointer import Checkpointer as Checkpointer
    from allranks.consistency.tree_digest import tree_digest as tree_digest
    from allranks.consistency.verify import verify as verify
    from allranks.data.dataset import Dataset as Dataset
    from allranks.data.rows import global_batch as global_batch
    from allranks.data.shard import shard as shard
    from allranks.gate.collective import collective as collective
    from allranks.gate.lockstep.api import lockstep as lockstep
    from allranks.gate.log import log as log
    from allranks.gate.log import print as print  # noqa: A004
    from allranks.gate.main_rank import main_rank as main_rank
    from allranks.gate.writer import RankWriter as RankWriter
    from allranks.hang.start import init as init
    from allranks.loading.load import load as load
    from allranks.readiness.preflight import preflight as preflight
    from allranks.world.base import World as World
    from allranks.world.detect import current as current
    from allranks.world.simulated import SimulatedWorld as SimulatedWorld

# Each is imported at its first use, so that commands that only read code or files start fast.
_PLACES = {
    "BatchPlan": "arrays.batch",
    "Checkpointer": "checkpoint.checkpointer",
    "Dataset": "data.dataset",
    "RandomState": "arrays.random_state",
    "RankWriter": "gate.writer",
    "SimulatedWorld": "world.simulated",
    "World": "world.base",
    "collective": "gate.collective",
    "current": "world.detect",
    "describe": "arrays.detect",
    "global_batch": "data.rows",
    "init": "hang.start",
    "load": "loading.load",
    "lockstep": "gate.lockstep.api",
    "log": "gate.log",
    "main_rank": "gate.main_rank",
    "preflight": "readiness.preflight",
    "print": "gate.log",
    "shard": "data.shard",
    "tree_digest": "consistency.tree_digest",
    "verify": "consistency.verify",
}


def __getattr__(name: str) -> object:
    if name == "errors":
        return _import_module("allranks.errors")
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(_import_module(f"allranks.{_PLACES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES, "errors"})
