"""Who sets the seed of a process, and what is drawn from it while a model is trained."""

from __future__ import annotations

import re

SEEDERS: frozenset[str] = frozenset(
    [
        *(
            "torch.manual_seed",
            "accelerate.utils.set_seed",
            "transformers.set_seed",
            "transformers.trainer_utils.set_seed",
        ),
        *("lightning.pytorch.seed_everything", "lightning.fabric.Fabric.seed_everything"),
    ]
)
# Those that decide what a family of functions draws; a seeder of another name decides for all of them.
KEYS = ("jax.random.PRNGKey", "jax.random.key", "flax.nnx.Rngs")
FAMILIES = ("random", "numpy", "torch", "sklearn")
STATES: frozenset[str] = frozenset(["random.seed", "numpy.random.seed"])
# Calls that put data in an order, or divide it, by what they draw.
ORDERS: frozenset[str] = frozenset(
    [
        *("torch.utils.data.random_split", "sklearn.model_selection.train_test_split"),
        *("random.shuffle", "numpy.random.shuffle"),
    ]
)
WHOLE: frozenset[str] = frozenset(["torch.randint", "torch.randint_like"])
TIMES = re.compile(r"^(t|ts|timesteps?|times?|sigmas?|u)$|timestep|time_step|sigma", re.IGNORECASE)
# Drawn to be looked at, to begin with, or for all ranks alike.
APART = re.compile(
    r"fixed|grid|static|const|test|val|eval|infer|init|reset|repar|visual|plot|preview|dummy|bench|profile|warm|"
    r"augment|penalty|mask|drop|generat(e|ion)$|^(do_)?sampl(e|er|ing)$|sample_image|render",
    re.IGNORECASE,
)
