"""Faults of people's own checkpoints, without us and with us: what they did loses data in silence."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import SafetensorError
from safetensors.numpy import load, load_file, save, save_file

import allranks
from allranks.errors import AllranksError, DoesNotFit, Mismatch, SaveFailed
from allranks.world.detect import single_world


@pytest.mark.world(n=4, devices=2, backend="jax")
@pytest.mark.needs("jax")
def test_a_shard_saved_as_the_whole(world: allranks.World, shared_tmp_path: Path) -> None:
    """``addressable_data(0)`` of (8, 3) is (1, 3), and its file loads; with us every row is there, without a gather."""
    import jax
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    content = np.arange(24, dtype=np.float32).reshape(8, 3)
    cut = NamedSharding(Mesh(np.array(jax.devices()), ("x",)), P("x"))
    array = jax.make_array_from_callback(content.shape, cut, lambda index: content[index])
    if world.is_main:
        save_file({"w": np.asarray(array.addressable_data(0))}, shared_tmp_path / "mine.safetensors")
        assert load_file(shared_tmp_path / "mine.safetensors")["w"].shape == (1, 3), "an eighth, and no complaint"

    with allranks.Checkpointer(shared_tmp_path / "run", world) as ckpt:
        ckpt.save(1, {"w": array}, block=True)
        restored = ckpt.restore({"w": np.zeros_like(content)})
    assert restored is not None
    assert (restored[0]["w"] == content).all()


def test_four_writers_on_one_path(tmp_path: Path) -> None:
    """Who reads while ranks write to one name sees torn files; with us the reader sees whole steps, always."""
    one = tmp_path / "model.safetensors"
    contents = [save({"w": np.full(200_000, rank, np.float32)}) for rank in range(4)]
    start = threading.Barrier(5)

    def write(data: bytes) -> None:
        start.wait()
        for _ in range(20):
            with one.open("wb", buffering=0) as file:
                for at in range(0, len(data), 1 << 16):
                    file.write(data[at : at + (1 << 16)])

    writers = [threading.Thread(target=write, args=(data,)) for data in contents]
    for writer in writers:
        writer.start()
    start.wait()
    torn = 0
    while any(writer.is_alive() for writer in writers):
        try:
            # Not load_file: it maps the file into memory, and one that a writer cuts off meanwhile is a SIGBUS.
            values = np.unique(load(one.read_bytes())["w"]) if one.exists() else np.zeros(1)
            torn += len(values) > 1
        except (SafetensorError, OSError, ValueError):
            torn += 1
    for writer in writers:
        writer.join()
    assert torn > 0, "without us"

    template = {"w": np.zeros(200_000, np.float32)}
    with allranks.Checkpointer(tmp_path / "run", single_world(), keep_last=3) as ckpt:
        for step in range(1, 21):
            ckpt.save(step, {"w": np.full(200_000, step, np.float32)})
            restored = ckpt.restore(template)  # waits for the save
            assert restored is not None
            assert (np.unique(restored[0]["w"]) == [step]).all()


OVERWRITE = """
import os, sys
import numpy as np
path, data = sys.argv[1], np.random.default_rng(0).bytes(64 << 20)
with open(path, "wb") as file:
    for at in range(0, len(data), 1 << 20):
        file.write(data[at : at + (1 << 20)])
        file.flush()
        if at == 16 << 20:
            print("half", flush=True)
            sys.stdin.read(1)
"""
SAVES = """
import sys
import numpy as np
import allranks
from allranks.storage import LocalStorage
class Slow(LocalStorage):
    def put(self, path, data, *, replace=False):
        if path.startswith("checkpoint-2"):
            print("half", flush=True)
            sys.stdin.read(1)
        super().put(path, data, replace=replace)
ckpt = allranks.Checkpointer(Slow(sys.argv[1]), allranks.init("single"))
ckpt.restore({"w": np.zeros(1 << 20, np.float32)})
ckpt.save(2, {"w": np.full(1 << 20, 2, np.float32)}, block=True)
"""


def kill_half_way(program: str, path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "half\n"
        os.kill(process.pid, signal.SIGKILL)
        process.wait(60)


def test_a_kill_in_a_save_over_the_same_path(tmp_path: Path) -> None:
    """The plain file is neither the old nor the new one; with us the old step is there, and the next job goes on."""
    plain = tmp_path / "model.safetensors"
    save_file({"w": np.ones(16 << 20, np.float32)}, plain)
    kill_half_way(OVERWRITE, plain)
    with pytest.raises(SafetensorError):
        load_file(plain)

    state = {"w": np.ones(1 << 20, np.float32)}
    with allranks.Checkpointer(tmp_path / "run", single_world()) as ckpt:
        ckpt.save(1, state, block=True)
    kill_half_way(SAVES, tmp_path / "run")
    with allranks.Checkpointer(tmp_path / "run", single_world()) as ckpt:
        restored = ckpt.restore({"w": np.zeros(1 << 20, np.float32)})
        assert restored is not None
        assert restored[1] == 1
        assert (restored[0]["w"] == 1).all()
        ckpt.save(2, state, block=True)
        assert ckpt.steps() == (1, 2)


@pytest.mark.world(n=2, backend="torch")
@pytest.mark.needs("torch")
def test_weights_loaded_on_rank_0_after_the_wrap(world: allranks.World, shared_tmp_path: Path) -> None:
    """DDP broadcasts at its construction only: the ranks train on different weights; a save and a restore say so."""
    import torch
    from torch.nn.parallel import DistributedDataParallel as Ddp

    torch.manual_seed(0)
    model = Ddp(torch.nn.Linear(3, 2))
    ckpt = allranks.Checkpointer(shared_tmp_path, world)
    ckpt.save(1, {"model": model}, block=True)
    if world.is_main:  # the bug
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(7.0)
    model(torch.ones(1, 3)).sum().backward()  # without us: it trains, and differs for ever
    weights = world.all_gather(model.module.weight.sum().item())
    assert weights[0] == 42.0 != weights[1]

    with pytest.raises(
        Mismatch, match=r"leaf 'model/module\.weight', float32\[2, 3\], on rank 1 against rank 0, a tie"
    ):
        ckpt.save(2, {"model": model})
    restored = ckpt.restore({"model": model})
    assert restored is not None
    weights = world.all_gather(model.module.weight.sum().item())
    assert weights[0] == weights[1]

    bare = Ddp(torch.nn.Linear(3, 2), init_sync=False)
    with torch.no_grad():
        bare.module.weight.fill_(world.rank)
    with pytest.raises(Mismatch, match=r"module\.weight"):
        ckpt.save(2, {"model": bare})
    ckpt.close()


@pytest.mark.world(n=2, backend="torch")
@pytest.mark.needs("torch")
def test_a_rank_that_did_not_load_is_caught_by_the_vote(world: allranks.World, shared_tmp_path: Path) -> None:
    """An object whose load_state_dict does nothing on one rank: all ranks raise, naming leaf and rank."""

    class Model:
        def __init__(self) -> None:
            self.w = np.full(3, world.rank, np.float32)

        def state_dict(self) -> dict[str, Any]:
            return {"w": self.w.copy()}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            if world.is_main:
                self.w = state["w"]

    ckpt = allranks.Checkpointer(shared_tmp_path, world)
    ckpt.save(1, {"model": {"w": np.full(3, 5, np.float32)}}, block=True)
    with pytest.raises(Mismatch, match=r"leaf 'model/w', float32\[3\], on rank 1 against rank 0, a tie"):
        ckpt.restore({"model": Model()})
    ckpt.close()


@pytest.mark.needs("torch")
def test_a_prefix_with_strict_false(tmp_path: Path) -> None:
    """torch loads nothing and says nothing; with us all four are named, and the prefix that explains them."""
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 2))
    saved = {f"model.{name}": torch.full_like(tensor, 7.0) for name, tensor in model.state_dict().items()}
    before = model[0].weight.clone()
    told = model.load_state_dict(saved, strict=False)
    assert (len(told.missing_keys), len(told.unexpected_keys)) == (4, 4)
    assert torch.equal(model[0].weight, before), "without us: nothing is loaded, and no error"

    with allranks.Checkpointer(tmp_path, single_world()) as ckpt:
        ckpt.save(1, saved, block=True)
        with pytest.raises(
            DoesNotFit, match=r"(?s)4 missing, 4 unexpected.*the prefix 'model\.', which only the check"
        ):
            ckpt.restore(model)
    assert torch.equal(model[0].weight, before)


@pytest.mark.world(n=2, devices=1, backend="jax")
@pytest.mark.needs("jax")
def test_a_checkpoint_on_one_host_only(world: allranks.World, shared_tmp_path: Path) -> None:
    """``if path.exists()`` on each rank mixes weights; with us the directory is refused, on all ranks."""
    import jax
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    mine = shared_tmp_path / f"disk of host {world.rank}"
    mine.mkdir()
    if world.is_main:
        np.save(mine / "w.npy", np.full(4, 7.0, np.float32))
    local = np.load(mine / "w.npy") if (mine / "w.npy").exists() else np.zeros(4, np.float32)
    cut = NamedSharding(Mesh(np.array(jax.devices()), ("x",)), P("x"))
    mixed = jax.make_array_from_callback((4,), cut, lambda index: local[index])
    whole = jax.jit(lambda a: a, out_shardings=NamedSharding(cut.mesh, P()))(mixed)
    assert np.asarray(whole.addressable_data(0)).tolist() == [7.0, 7.0, 0.0, 0.0], "without us"

    with pytest.raises(AllranksError, match=r"rank 1 .*cannot see the file that rank 0"):
        allranks.Checkpointer(mine, world)


def test_a_full_disk_is_told_and_the_last_step_stays(tmp_path: Path) -> None:
    """Without us ``np.save`` leaves a part of a file under the good name; with us the step before is the newest."""
    from allranks.storage import MemoryStorage

    del tmp_path
    disk = MemoryStorage(capacity=1 << 20)
    with allranks.Checkpointer(disk, single_world()) as ckpt:
        ckpt.save(1, {"w": np.ones(150_000, np.float32)}, block=True)
        with pytest.raises(SaveFailed, match="No space left"):
            ckpt.save(2, {"w": np.ones(150_000, np.float32)}, block=True)
        assert ckpt.steps() == (1,)
        assert not any(path.startswith("checkpoint-2") for path in disk.file_contents())
