"""Lightning's checkpoints as ours: nothing is lost, nothing is pickled, and no moment is without a whole one."""

from __future__ import annotations

import pickle
from collections import Counter, OrderedDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.plugins.io import AsyncCheckpointIO, TorchCheckpointIO

from allranks.checkpoint import inventory
from allranks.errors import AllranksError, CannotStore, Damaged, NotThere
from allranks.integrations import document, loop
from allranks.integrations.lightning import CheckpointIO, Ranks
from allranks.storage.local import LocalStorage
from allranks.world.detect import single_world


class Line(LightningModule):
    """A module of Lightning."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(1, 1)


def checkpoint(step: int) -> dict[str, Any]:
    """What a Trainer saves, and what people put beside it."""
    net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)).to(torch.bfloat16)
    return {
        "global_step": step,
        "state_dict": net.state_dict(),
        "optimizer_states": [{"state": {0: {"step": torch.tensor(3.0)}}, "param_groups": [{"betas": (0.9, 0.99)}]}],
        "lr_schedulers": [{"milestones": Counter({2: 1}), "best": float("inf")}],
        "callbacks": {"a{'b': 1}": {"best_k_models": {"/x/y.ckpt": torch.tensor(0.5)}, "dirpath": Path("/x")}},
        "hyper_parameters": {"dtype": torch.float16, "device": torch.device("cpu"), "size": torch.Size([2, 3])},
        "own": {"rng": np.arange(4, dtype=np.uint32), "lr": np.float64(0.1), "$odd": b"\x00\xff", "x": [None, True]},
        "a/b": torch.ones(1),
        "a": {"b": torch.zeros(1)},
    }


def test_a_removal_leaves_files_of_others(tmp_path: Path) -> None:
    """In the folder of a checkpoint and in its steps, and where the checkpoint is a link."""
    plugin, path, mine = CheckpointIO(), tmp_path / "a.ckpt", tmp_path / "mine"
    plugin.save_checkpoint(checkpoint(1), path)
    mine.mkdir()
    for file in (mine / "thesis.tex", path / "notes.txt", path / "checkpoint-1" / "eval.json"):
        file.write_text("mine")
    (tmp_path / "last.ckpt").symlink_to(mine)
    for name in ("last.ckpt", "a.ckpt"):
        plugin.remove_checkpoint(tmp_path / name)
    found = [str(one.relative_to(tmp_path)) for one in sorted(tmp_path.rglob("*")) if not one.is_dir()]
    assert found == ["a.ckpt/checkpoint-1/eval.json", "a.ckpt/notes.txt", "mine/thesis.tex"]
    for file in (path / "notes.txt", path / "checkpoint-1" / "eval.json"):
        file.unlink()
    plugin.remove_checkpoint(path)
    assert not path.exists()


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, np.ndarray | np.generic):
        return type(one) is type(other) and one.dtype == other.dtype and bool((one == other).all())
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(type(one) is type(other) and one == other)


def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    """Types of containers and keys, dtypes, the versions of modules; and no pickle is in the folder."""
    given, io = checkpoint(10), CheckpointIO()
    io.save_checkpoint(given, tmp_path / "a.ckpt")
    found = io.load_checkpoint(tmp_path / "a.ckpt")
    assert same(given, found)
    assert type(found["state_dict"]) is OrderedDict
    assert found["state_dict"]._metadata == given["state_dict"]._metadata
    torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)).load_state_dict(found["state_dict"])
    for file in (tmp_path / "a.ckpt").rglob("*"):
        if file.is_file():
            with pytest.raises((pickle.UnpicklingError, ValueError, EOFError)):
                pickle.loads(file.read_bytes())


@pytest.mark.parametrize("thing", [SimpleNamespace(), torch.nn.functional.relu, torch.nn.Linear, {1, 2}])
def test_what_only_a_pickle_holds_is_refused_by_name(thing: Any, tmp_path: Path) -> None:
    """Before anything is written, and what was saved there before stays."""
    io = CheckpointIO()
    io.save_checkpoint(checkpoint(1), tmp_path / "a.ckpt")
    with pytest.raises(CannotStore, match=r"hyper_parameters/loss/0 is a .*save_hyperparameters\(ignore"):
        io.save_checkpoint({"hyper_parameters": {"loss": [thing]}}, tmp_path / "a.ckpt")
    assert io.load_checkpoint(tmp_path / "a.ckpt")["global_step"] == 1


def test_a_save_over_another_and_a_removal(tmp_path: Path) -> None:
    """``last.ckpt`` again and again, also of an earlier step; a link is replaced, and not what it leads to."""
    io, last = CheckpointIO(), tmp_path / "last.ckpt"
    for step in (4, 4, 2):
        io.save_checkpoint(checkpoint(step), last)
        assert io.load_checkpoint(last)["global_step"] == step
        assert len(inventory.complete_steps(LocalStorage(str(last)))) == 1
    (tmp_path / "link.ckpt").symlink_to(last)
    io.save_checkpoint(checkpoint(9), tmp_path / "link.ckpt")
    assert io.load_checkpoint(last)["global_step"] == 2
    io.remove_checkpoint(last)
    assert not last.exists()
    with pytest.raises(NotThere, match=r"there is no checkpoint at .*last\.ckpt"):
        io.load_checkpoint(last)


def test_a_damaged_checkpoint_is_not_loaded(tmp_path: Path) -> None:
    io = CheckpointIO()
    io.save_checkpoint(checkpoint(1), tmp_path / "a.ckpt")
    file = next((tmp_path / "a.ckpt").rglob("*.safetensors"))
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(Damaged):
        io.load_checkpoint(tmp_path / "a.ckpt")


def test_lightnings_own_files_are_loaded_and_removed(tmp_path: Path) -> None:
    """So that a run can change to ours in the middle."""
    TorchCheckpointIO().save_checkpoint({"global_step": 5, "w": torch.ones(2)}, str(tmp_path / "a.ckpt"))
    io = CheckpointIO()
    assert torch.equal(io.load_checkpoint(tmp_path / "a.ckpt", weights_only=True)["w"], torch.ones(2))
    io.remove_checkpoint(tmp_path / "a.ckpt")
    assert not (tmp_path / "a.ckpt").exists()


@pytest.mark.parametrize("behind", [False, True])
def test_a_file_of_lightnings_makes_way(behind: bool, tmp_path: Path) -> None:
    """``last.ckpt`` of before becomes a folder; the file goes when that is whole, and stays where it is refused."""
    path = tmp_path / "last.ckpt"
    TorchCheckpointIO().save_checkpoint(checkpoint(1), path)
    io = CheckpointIO(behind=behind)
    with pytest.raises(CannotStore):
        io.save_checkpoint({**checkpoint(2), "odd": {1, 2}}, path)
    assert path.is_file()
    io.save_checkpoint(checkpoint(2), path)
    assert io.load_checkpoint(path)["global_step"] == 2
    assert [file.name for file in tmp_path.iterdir()] == ["last.ckpt"]


def test_a_callback_loads_into_each_model_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second fit of a model goes on with what it has learnt; another model is loaded, too."""
    monkeypatch.setattr(loop, "join_world", lambda *_, **__: single_world())
    torch.save({"state_dict": {"net.weight": torch.full((1, 1), 7.0), "net.bias": torch.ones(1)}}, tmp_path / "a.ckpt")
    ranks, trainer = Ranks(load=tmp_path / "a.ckpt"), SimpleNamespace(global_rank=0, world_size=1)
    nets = [Line(), Line()]
    for net in nets:
        ranks.setup(trainer, net, "fit")
        assert net.net.weight.item() == 7
        with torch.no_grad():
            net.net.weight.fill_(3)
        ranks.setup(trainer, net, "fit")
        ranks.on_test_start(trainer, net)
        assert net.net.weight.item() == 3
    assert pickle.loads(pickle.dumps(ranks)).report.coverage == 1


def test_a_save_behind_is_of_the_moment_and_seen_to_its_end(tmp_path: Path) -> None:
    """The program changes the state at once; a removal, a load and the teardown wait for what is being written."""
    io, weights = CheckpointIO(behind=True), torch.zeros(1000)
    io.save_checkpoint({"global_step": 1, "w": weights}, tmp_path / "a.ckpt")
    weights += 1
    io.save_checkpoint({"global_step": 2, "w": weights}, tmp_path / "b.ckpt")
    io.remove_checkpoint(tmp_path / "a.ckpt")
    assert (io.load_checkpoint(tmp_path / "b.ckpt")["w"] == 1).all()

    def save(to: Any, name: str) -> None:
        to.save_checkpoint({"w": weights}, tmp_path / name)
        to.teardown()

    (tmp_path / "file").write_text("")
    with pytest.raises(AllranksError):
        save(io, "file/c.ckpt")
    with pytest.raises(AllranksError, match=r"use CheckpointIO\(behind=True\)"):
        save(AsyncCheckpointIO(io), "d.ckpt")


def test_arrays_are_called_by_their_paths() -> None:
    """As a reader of the checkpoint would look for them; two of one path are told apart."""
    arrays, words = document.split_arrays({"a/b": torch.ones(1), "a": {"b": torch.zeros(1)}, "c": {0: np.ones(2)}})
    assert list(arrays) == ["a/b", "a/b'", "c/0"]
    assert dict(document.array_names(words)) == {"a/b": True, "a/b'": True, "c/0": False}
