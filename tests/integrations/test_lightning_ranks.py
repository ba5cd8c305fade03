"""Lightning on real ranks: what goes on in silence without us, and stops with us; what is saved on preemption."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lit
import pytest
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.strategies import DDPStrategy
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import allranks
from allranks.errors import Mismatch
from allranks.integrations.lightning import CheckpointIO, Ranks
from allranks.world import sigterm
from allranks.world.progress import progress


@pytest.fixture(autouse=True)
def _lightning_warns_of_much() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def weights(net: torch.nn.Module) -> float:
    return sum(one.double().sum().item() for one in net.parameters())


class Slip(Callback):
    """A number on rank 1 turns, after three steps."""

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        if trainer.global_step == 3 and trainer.global_rank == 1:
            with torch.no_grad():
                pl_module.net[0].bias[3] += 1e-4


@pytest.mark.world(n=4, backend="torch", timeout=300)
def test_a_rank_with_other_weights_stops_all_and_is_named(world: allranks.World, shared_tmp_path: Path) -> None:
    """Rank 2 is given other weights, and DDP believes that they are equal: it trains on. With us all ranks stop."""

    def fit(net: lit.Net, *callbacks: Any, steps: int = 2) -> None:
        ddp = DDPStrategy(init_sync=False)
        lit.trainer(shared_tmp_path, *callbacks, devices=4, strategy=ddp, max_steps=steps).fit(net)

    net = lit.Net(seed=int(world.rank == 2))
    fit(net)
    after = world.all_gather(weights(net))
    assert after[2] != after[0] == after[1] == after[3], "without us: it trains, and rank 2 is another model"

    said = r"leaf 'model/net\.0\.weight', float32\[8, 4\], on rank 2 against ranks 0-1, 3"
    with pytest.raises(Mismatch, match=said) as caught:
        fit(lit.Net(seed=int(world.rank == 2)), Ranks())
    assert caught.value.ranks == (2,)

    # Later: the buffers of a batch norm are each rank's own between two steps, and no reason to stop.
    with pytest.raises(Mismatch, match=r"at step 4.*leaf 'parameters/net\.\d\.\w+'.* on rank 1 against ranks 0, 2-3"):
        fit(lit.Net(), Slip(), Ranks(verify_every=2), steps=6)
    assert progress.step == 3

    # Loaded on every rank, before the wrap; what the file has not must be equal, too.
    file = shared_tmp_path / "others.ckpt"
    if world.is_main:
        theirs = lit.Net(seed=7).net.state_dict()
        torch.save({"state_dict": {f"model.{name}": one for name, one in theirs.items() if "2." not in name}}, file)
    world.barrier()
    ranks = Ranks(load=file, rename={"model.*": "net.*"}, allow_missing=["net.2.*"])
    net = lit.Net(seed=3)
    fit(net, ranks, steps=1)
    assert ranks.report is not None
    assert ranks.report.missing == ("net.2.weight", "net.2.bias")
    assert len(set(ranks.report.after)) == 1
    assert len(set(world.all_gather(weights(net)))) == 1
    again = Ranks(load=file, rename={"model.*": "net.*"}, allow_missing=["net.2.*"])
    with pytest.raises(Mismatch, match=r"leaf 'net\.2\.weight'.* on rank 2 against ranks 0-1, 3"):
        fit(lit.Net(seed=int(world.rank == 2)), again)


@pytest.mark.world(n=2, backend="torch", timeout=300)
def test_a_preempted_training_goes_on_as_if_nothing_had_happened(
    world: allranks.World, shared_tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM on rank 1: both save one step, with optimizer and schedule, and leave; the logger has written once."""
    parted: list[Any] = []  # our launcher must not hear of it: these ranks go on
    monkeypatch.setattr(
        sigterm,
        "agent",
        SimpleNamespace(
            load=lambda: SimpleNamespace(leave_in_order=lambda *of: parted.append(of), report=lambda *_, **__: None)
        ),
    )

    def fit(folder: Path, *callbacks: Any, steps: int, io: Any, **how: Any) -> lit.Net:
        net = lit.Net(rows=20_000)
        keeps = ModelCheckpoint(folder, every_n_train_steps=2, save_top_k=1, monitor="step", mode="max")
        logger = TensorBoardLogger(shared_tmp_path, name=folder.name, version=0)
        lit.trainer(
            folder, *callbacks, keeps, plugins=[io], logger=logger, log_every_n_steps=1,
            devices=2, strategy="ddp", max_steps=steps,
        ).fit(net, **how)  # fmt: skip
        return net

    ours = shared_tmp_path / "ours"
    with pytest.raises(SystemExit) as left:
        fit(ours, lit.Told(1, at=3), Ranks(verify_every=5), steps=5000, io=CheckpointIO(behind=True))
    assert left.value.code == parted[0][0] == 143
    saved = CheckpointIO().load_checkpoint(ours / "last.ckpt")
    step = saved["global_step"]
    assert world.all_gather(step) == (step, step)
    assert 3 < step < 5000
    assert len(list(ours.glob("epoch*.ckpt"))) == 1, "save_top_k=1: what is not kept is removed"
    events = list((shared_tmp_path / "ours").rglob("events.*"))
    assert len(events) == 1
    told = EventAccumulator(str(events[0])).Reload().Scalars("loss")
    assert [one.step for one in told] == list(range(step - 1)), "once each; the last is logged after the hooks"

    resumed = fit(ours, Ranks(), steps=step + 4, io=CheckpointIO(), ckpt_path="last")
    straight = fit(shared_tmp_path / "straight", steps=step + 4, io=CheckpointIO())
    pairs = zip(resumed.parameters(), straight.parameters(), strict=True)
    assert all(torch.allclose(one, other, rtol=0, atol=1e-6) for one, other in pairs)

    # What CheckpointIO has saved is a checkpoint like any other.
    net = lit.Net(seed=5)
    report = allranks.load(ours / "last.ckpt", net)
    assert (report.coverage, report.format) == (1.0, f"allranks checkpoint, step {step}")
    assert torch.equal(net.net[0].weight, saved["state_dict"]["net.0.weight"])
