"""Who sets the seed of a process, and what is drawn from it while a model is trained."""

from __future__ import annotations

import re
from collections.abc import Mapping

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
DECIDED: Mapping[str, tuple[str, ...]] = {"random": ("random",), "numpy": ("numpy", "sklearn"), "torch": ("torch",)}
STATES: frozenset[str] = frozenset(["random.seed", "numpy.random.seed"])
# Calls that put data in an order, or divide it, by what they draw.
ORDERS: frozenset[str] = frozenset(
    [
        *("torch.utils.data.random_split", "sklearn.model_selection.train_test_split"),
        *("random.shuffle", "numpy.random.shuffle"),
    ]
)
# Drawn by each process for its own part of the batch: noise, latents, times, places in the data.
NORMAL: frozenset[str] = frozenset(["torch.randn", "torch.randn_like", "torch.normal"])
UNIFORM: frozenset[str] = frozenset(["torch.rand", "torch.rand_like"])
WHOLE: frozenset[str] = frozenset(["torch.randint", "torch.randint_like"])
DRAWN = re.compile(r"noise|latent|^(z|x_?[01t]|eps|epsilon)$|^z_?\d?$", re.IGNORECASE)
LATENT = re.compile(r"(^|[._, \[])n?z(_?dim)?\b|latent|noise", re.IGNORECASE)  # its shape says so
TIMES = re.compile(r"^(t|ts|timesteps?|times?|sigmas?|u)$|timestep|time_step|sigma", re.IGNORECASE)
WINDOWS = re.compile(
    r"^(ix|idx|idxs|inds?|starts?|offsets?|i|ids|pos|positions|picks?)$|ind(ex|ices)|window", re.IGNORECASE
)
# Drawn to be looked at, to begin with, or for all ranks alike.
APART = re.compile(
    r"fixed|grid|static|const|test|val|eval|infer|init|reset|repar|visual|plot|preview|dummy|bench|profile|warm|"
    r"augment|penalty|mask|drop|generat(e|ion)$|^(do_)?sampl(e|er|ing)$|sample_image|render",
    re.IGNORECASE,
)
# What a program names that has ranks which are to draw alike.
GROUPED = re.compile(
    r"(tensor|sequence|context|pipeline)_?(model_)?parallel|^(tp|sp|cp|pp)_(size|rank|group|mesh)$|mpu$"
)
