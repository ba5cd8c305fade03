"""FSDP2 and torch.distributed.checkpoint on two processes: sharded modules, compared, saved, loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

import allranks
from allranks.errors import CollectiveOnOneRank, Mismatch, RemoteError

Trained = tuple[torch.nn.Module, torch.optim.Optimizer]


def trained(seed: int) -> Trained:
    """A model whose layers are sharded, after a step."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(6, 10), torch.nn.BatchNorm1d(10), torch.nn.Linear(10, 3))
    for layer in (model[0], model[2], model):
        fully_shard(layer)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.full((4, 6), float(seed))).sum().backward()
    optimizer.step()
    return model, optimizer


def same(one: Trained, other: Trained) -> bool:
    return allranks.tree_digest(list(one)) == allranks.tree_digest(list(other))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.world(n=2, backend="torch", timeout=240)
@pytest.mark.needs("torch")
def test_sharded_training_and_dcp_between_two_comparisons(world: allranks.World, shared_tmp_path: Path) -> None:
    """In our checkpoints and in DCP's; what is not cut, a running mean, is compared; DCP on one rank is stopped."""
    state, here = trained(1), trained(2)
    assert not same(state, here)
    with allranks.Checkpointer(shared_tmp_path / "run", world) as ckpt:
        ckpt.save(1, {"model": state[0], "opt": state[1]}, block=True)
        ckpt.restore({"model": here[0], "opt": here[1]})
    assert same(state, here)

    moving = state[0][1].running_mean
    right = moving.clone()
    moving += world.rank
    with pytest.raises(Mismatch, match=r"leaf '1\.running_mean', float32\[10\], on rank 1 against rank 0"):
        allranks.verify(state[0])
    moving.copy_(right)

    allranks.verify(list(state))
    weights, moments = get_state_dict(*state)
    dcp.save({"model": weights, "opt": moments}, checkpoint_id=shared_tmp_path / "dcp")
    here = trained(3)
    weights, moments = get_state_dict(*here)
    dcp.load({"model": weights, "opt": moments}, checkpoint_id=shared_tmp_path / "dcp")
    set_state_dict(*here, model_state_dict=weights, optim_state_dict=moments)
    allranks.verify(list(here))
    assert same(state, here)

    here = trained(4)
    allranks.load(shared_tmp_path / "dcp", here[0], key="model")
    assert allranks.tree_digest(here[0]) == allranks.tree_digest(state[0])
    with pytest.raises((CollectiveOnOneRank, RemoteError), match=r"CollectiveOnOneRank|would never join"):
        world.on_main(lambda: dcp.save({"model": weights}, checkpoint_id=shared_tmp_path / "alone"))
