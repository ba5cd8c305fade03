"""Digests of torch modules on real ranks."""

from __future__ import annotations

import pytest
import torch

import allranks
from allranks.arrays.base import Leaf
from allranks.errors import AllranksError, Mismatch


@pytest.mark.world(n=3, backend="torch")
def test_replicas_that_drift_apart_are_named(world: allranks.World) -> None:
    """Equal modules have one digest on all ranks; a weight that was changed on rank 1 alone is found, with its path."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).to(torch.bfloat16)
    tree = {"model": model, "seen": [torch.zeros(())]}
    assert [leaf.path for leaf in allranks.describe(tree)][:2] == ["model/0.weight", "model/0.bias"]
    assert allranks.describe(model)[0] == Leaf("0.weight", (4, 3), "bfloat16", (1, 1), 24)
    digest = allranks.tree_digest(tree, world)
    assert world.agree(digest) == digest
    if world.rank == 1:
        with torch.no_grad():
            model[0].weight[0, 0] += 1
    with pytest.raises(
        Mismatch,
        match=r"leaf .model/0\.weight., bfloat16\[4, 3\], on rank 1 against ranks 0, 2 \[rank 1: 1 element, first",
    ):
        allranks.tree_digest(tree, world)


def test_a_tree_without_arrays_is_refused() -> None:
    """Nothing to describe is more likely a mistake than a wish."""
    with pytest.raises(AllranksError, match="no JAX array and no torch tensor"):
        allranks.describe({"step": 3})
