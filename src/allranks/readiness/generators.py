"""Check whether a DataLoader draws from global random generators, whose states a checkpoint holds only on request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from allranks.arrays.global_generators import count_draws, random_state_of, read_global_states
from allranks.failure import text_of
from allranks.findings import Row, ok, warning
from allranks.readiness.detect import import_adapter

_TOPIC = "global generators"


def global_draws_row(loader: Any) -> Row:
    """Return the report row about what a DataLoader draws from the global generators of random, numpy.random and torch.

    It reads the first sample of a data set that has a length, and gives back what that sample has drawn.
    """
    torch = import_adapter("torch")
    by_torch = torch is not None and torch.shuffles_by_global_generator(loader)
    before, read = read_global_states(), "sample 0"
    try:
        if hasattr(loader.dataset, "__len__") and len(loader.dataset):
            loader.dataset[0]
    except (LookupError, TypeError):  # the samples have other keys than numbers, which only their sampler knows
        read = "no sample (which have other keys than 0)"
    except Exception as error:  # of the user's data set: the loop reads it again, and raises
        return warning(_TOPIC, f"sample 0 cannot be read: {text_of(error)}", remedy="Read dataset[0] to see where.")
    finally:
        drawn = list(_give_back_draws(before))
    found = ["the order of the samples comes from torch"] * by_torch
    found += [f"sample 0 draws from {' and '.join(drawn)}"] * bool(drawn)
    if not found:
        return ok(_TOPIC, f"the loader's order and {read} draw from none")
    names = [name for name in before if name in drawn or (by_torch and name == "torch")]
    remedy = (
        f"Add {random_state_of(names)} to the state that is saved, or draw from a generator that is seeded by sample."
    )
    return warning(_TOPIC, "; ".join(found), remedy=remedy)


def _give_back_draws(before: Any) -> Iterator[str]:
    """Put back the states of the generators that were only drawn from; yield their modules."""
    after = read_global_states()
    for module, state in before.items():
        if module in after and count_draws(state, after[module]):
            state.put_back()
            yield module
