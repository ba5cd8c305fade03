"""Calls that every process of a group must make, in the same order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Form: TypeAlias = Literal["call", "attribute", "context"]


@dataclass(frozen=True, slots=True)
class Collective:
    """``pattern`` meets the other processes as ``op``; two roles agree when their sequences of ops are equal.

    ``group``: the parameter that names a sub-group (keyword, or position from 0); without it, all processes meet.
    ``uniform``: what it returns is the same on every rank; ``in_place``: positions of arguments that become the same
    on every rank. ``unless``: (keyword, constant) under which it meets nobody; ``only_if``: it meets somebody only
    under one of these. ``hidden``: the name does not say that it waits for others.
    """

    pattern: str
    op: str
    form: Form = "call"
    group: tuple[str | int, ...] = ()
    uniform: bool = True
    in_place: tuple[int, ...] = ()
    unless: tuple[tuple[str, object], ...] = ()
    only_if: tuple[tuple[str, object], ...] = ()
    hidden: bool = False


COLLECTIVES: tuple[Collective, ...] = (
    Collective("torch.distributed.barrier", "barrier", group=("group", 0)),
    Collective("torch.distributed.all_reduce", "all_reduce", group=("group", 2), in_place=(0,)),
    Collective("torch.distributed.broadcast", "broadcast", group=("group", 2), in_place=(0,)),
    Collective("torch.distributed.gather", "gather", group=("group", 3), uniform=False),
    Collective("torch.distributed.all_gather", "all_gather", group=("group", 2), in_place=(0,)),
    Collective("jax.experimental.multihost_utils.sync_global_devices", "barrier"),
    Collective("jax.experimental.multihost_utils.process_allgather", "process_allgather"),
    Collective("jax.experimental.multihost_utils.broadcast_one_to_all", "broadcast"),
)
