"""Torch models that lie on all ranks in parts, though their class does not say so: `fully_shard` changes them where
they are, Accelerate's ``prepare`` gives them back."""

from __future__ import annotations

import re

from allranks.check.interpret.given import Given
from allranks.check.interpret.values import ONE_OF, Value, replace
from allranks.check.interpret.wrapped import given_back
from allranks.check.summaries.render import render
from allranks.check.summaries.summary import FunctionFacts, body_of, calls_below
from allranks.check.tables.receivers import RETURNS

FULLY_SHARD = "torch.distributed.fsdp.fully_shard"
PLUGIN = "FullyShardedDataParallelPlugin"
# Flags of a model: what its forward pass meets the other ranks in, if anything.
SHARDED, PREPARED = "sharded by FSDP", "prepared by Accelerate"
IN_PARTS = frozenset({SHARDED, PREPARED})
FORWARD = {SHARDED: RETURNS[FULLY_SHARD], PREPARED: "accelerate.PreparedModel"}
# What is prepared beside models, by its name.
_OTHERS = re.compile(r"(?i)(optim\w*|sched\w*|(data)?_?loader\w*|dl|lr_\w+)$")


def sharded(model: Value) -> Value:
    return replace(model, flags=model.flags | {SHARDED})


def prepared(name: str, given: Given) -> Value:
    """Return what ``prepare`` gives back for what it is given."""
    return given_back(name, given, PREPARED, lambda one: not _OTHERS.search(one))


def sharded_by(facts: FunctionFacts) -> tuple[str, ...]:
    """Return the parameters of a function that it shards where they are."""
    if "fully_shard" not in facts.words:
        return ()
    calls = (call for call in calls_below(body_of(facts)) if call[2] and render(call[1]).endswith("fully_shard"))
    given = {call[2][0][1] for call in calls if call[2][0][0] == "name"}
    return tuple(name for name in facts.positional if name in given)


def forward_of(model: Value) -> str:
    """Return the class whose forward pass that of a model is; empty for one that lies on each rank."""
    flags = model.flags & IN_PARTS if not model.flags & ONE_OF and not model.reference else frozenset()
    return FORWARD[min(flags, key=len)] if flags else ""
