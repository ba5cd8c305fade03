"""Expressions that tell one process from another, and those that tell whether there are others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["global", "local", "node", "group", "size", "many"]
Form: TypeAlias = Literal["call", "attribute", "environment", "decorator", "name"]


@dataclass(frozen=True, slots=True)
class RankQuery:
    """``pattern`` gives a rank of ``kind``, the world's ``size``, or whether there are ``many`` processes (a truth).

    ``first`` and ``last``: it is a truth, "I am the first (last) of them". ``form``: how it stands in code; an
    ``environment`` pattern is the variable's name, a ``decorator`` lets only that rank run the function (elsewhere the
    call returns None), a ``name`` is a bare variable or parameter that nothing in the project explains.
    """

    pattern: str
    kind: Kind
    form: Form = "call"
    first: bool = False
    last: bool = False


QUERIES: tuple[RankQuery, ...] = (
    RankQuery("jax.process_index", "global"),
    RankQuery("jax.process_count", "size"),
    RankQuery("torch.distributed.get_rank", "global"),
    RankQuery("torch.distributed.get_world_size", "size"),
    RankQuery("torch.distributed.is_initialized", "many"),
    RankQuery("torch.distributed.is_available", "many"),
    RankQuery("RANK", "global", "environment"),
    RankQuery("LOCAL_RANK", "local", "environment"),
    RankQuery("WORLD_SIZE", "size", "environment"),
    RankQuery("*.is_main_process", "global", "attribute", first=True),
    RankQuery("*.rank", "global", "attribute"),
    RankQuery("*.local_rank", "local", "attribute"),
    RankQuery("*.rank_zero_only", "global", "decorator", first=True),
)
