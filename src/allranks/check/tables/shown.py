"""Calls that the readiness report points to."""

from __future__ import annotations

from allranks.check.tables.data import LOADERS, SPLITTERS, SPLITTING_FRAMEWORKS, UNSPLIT
from allranks.check.tables.seeds import KEYS, ORDERS, SEEDERS, STATES

SHARDINGS = ("jax.sharding.NamedSharding", "jax.sharding.Mesh", "jax.make_mesh", "jax.device_put")
# What wraps a model that it is given, beside trainers.
WRAPPED_BY = ("deepspeed.initialize", "ray.train.torch.prepare_model", "lightning.fabric.Fabric")
# What saves while a trainer trains, on every rank or on the one that the trainer chooses.
SAVERS = ("lightning.pytorch.callbacks.ModelCheckpoint",)
SEEDS = (*KEYS, *sorted(SEEDERS))
# Those that no other table has.
SHOWN: frozenset[str] = frozenset(
    [*SHARDINGS, *WRAPPED_BY, *SAVERS, *SEEDS, *SPLITTERS, *SPLITTING_FRAMEWORKS, *LOADERS, *UNSPLIT, *ORDERS, *STATES]
)
