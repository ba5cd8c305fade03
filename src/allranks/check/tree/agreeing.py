"""What comes of a process that decides for itself, and how all agree, in the words of the library that is used."""

from __future__ import annotations

from allranks.check.program import Divergence
from allranks.check.tables.arrays import COMPUTATION, EAGER

PARTED = "One process stops, and the others wait for it in their next step."
FAILED = "Let the error end the job, or all_reduce a flag that says that one rank has failed, and skip on all ranks."
_TORCH = "Let all processes decide alike: all_reduce the flag with MAX before any process skips or stops."
_JAX = "Let all processes decide alike: process_allgather the flag, and let all stop if any does."


def agreed(*, of_jax: bool) -> str:
    """Return what to do where each process decides for itself."""
    return _JAX if of_jax else _TORCH


def is_of_jax(parting: Divergence) -> bool:
    """Whether the processes part before something of JAX."""
    return parting.op in (COMPUTATION, EAGER) or parting.collective.startswith(("jax.", "orbax.", "flax."))
