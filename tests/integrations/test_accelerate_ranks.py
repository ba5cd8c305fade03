"""Accelerate on real ranks: compared after prepare, saved whole or not at all, resumed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration

import allranks
from allranks.errors import Damaged, Mismatch, StepExists
from allranks.integrations.accelerate import SEAL, Ranks
from allranks.world import sigterm


def made(seed: int = 0) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = torch.nn.Linear(4, 2)
    return model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)


def step(accelerator: Accelerator, model: Any, optimizer: Any) -> None:
    accelerator.backward(model(torch.ones(1, 4) * (1 + accelerator.process_index)).pow(2).sum())
    optimizer.step()
    optimizer.zero_grad()


def values(model: torch.nn.Module) -> list[float]:
    return [one.sum().item() for one in model.parameters()]


@pytest.mark.world(n=2, backend="torch", timeout=300)
def test_states_of_all_ranks_are_compared_and_saved_whole(
    world: allranks.World, shared_tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that differs, a file that changed, a save that one rank cannot make: all ranks are told at once."""
    named = ProjectConfiguration(shared_tmp_path, automatic_checkpoint_naming=True)
    with pytest.raises(allranks.errors.AllranksError, match=r"Ranks\.save_state\(step\) names the folders"):
        Ranks(Accelerator(cpu=True, project_config=named), shared_tmp_path)
    accelerator = Accelerator(cpu=True)
    ranks = Ranks(accelerator, shared_tmp_path, verify_every=2)
    model, optimizer = ranks.prepare(*made())
    assert ranks.load_state() is None
    for number in (1, 2):
        step(accelerator, model, optimizer)
        ranks.after(number)
    folder = ranks.save_state(2)
    assert sorted(one.name for one in folder.iterdir()) == [
        SEAL, "model.safetensors", "optimizer.bin", "random_states_0.pkl", "random_states_1.pkl",
    ]  # fmt: skip
    with pytest.raises(StepExists):
        ranks.save_state(2)
    saved = values(model)

    # A rank that steps otherwise. Without us it would train on.
    step(accelerator, model, optimizer)
    if world.rank == 1:
        with torch.no_grad():
            model.module.bias += 1
    ranks.after(3)
    with pytest.raises(Mismatch, match=r"at step 4: leaf 'prepared/0/bias'"):
        ranks.after(4)

    # A save that fails on one rank leaves nothing that is taken for a state.
    with monkeypatch.context() as patch:
        if world.rank == 1:
            patch.setattr(accelerator, "save_state", lambda *_, **__: (_ for _ in ()).throw(OSError("disk full")))
        with pytest.raises((OSError, allranks.errors.AllranksError), match="disk full"):
            ranks.save_state(4)
    assert not (shared_tmp_path / "step-4").exists()
    assert ranks.load_state() == 2
    assert values(model.module) == saved
    assert [group["lr"] for group in optimizer.param_groups] == [0.1]

    # SIGTERM on one rank.
    parted: list[Any] = []  # our launcher must not hear of it: these ranks go on
    monkeypatch.setattr(
        sigterm,
        "agent",
        SimpleNamespace(
            load=lambda: SimpleNamespace(leave_in_order=lambda *of: parted.append(of), report=lambda *_, **__: None)
        ),
    )

    def train() -> None:
        for number in range(3, 5000):
            if number == 5 and world.rank == 1:
                os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.01)
            step(accelerator, model, optimizer)
            if number == 4:
                ranks.save_state(number)
            ranks.after(number)

    with pytest.raises(SystemExit):
        train()
    assert parted[0][0] == 143
    assert ranks.load_state() == max(int(one.name[5:]) for one in shared_tmp_path.glob("step-*")) > 4

    # Files that are not as they were saved.
    world.barrier()
    if world.is_main:
        file = folder / "optimizer.bin"
        file.write_bytes(file.read_bytes()[:-1] + b"x")
    world.barrier()
    with pytest.raises(Damaged, match=r"optimizer\.bin differ from the saved files"):
        ranks.load_state(2)
