"""What goes wrong when many ranks load, without us and with us, on real processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import allranks
from allranks.errors import Damaged, DoesNotFit, Mismatch, NotThere


@pytest.mark.world(n=2, backend="torch")
@pytest.mark.needs("torch")
def test_ranks_that_load_apart(world: allranks.World, shared_tmp_path: Path) -> None:
    """Loaded on rank 0 after the wrap, or with ``init_sync=False``: DDP trains on, and the ranks differ for ever.

    With us every rank comes to the load, or all raise; and what the file has not is compared, too.
    """
    import torch
    from torch.nn.parallel import DistributedDataParallel as Ddp

    torch.manual_seed(world.rank)
    model = Ddp(torch.nn.Linear(3, 2))
    file = shared_tmp_path / "a.pt"
    if world.is_main:
        torch.save({"weight": torch.full((2, 3), 7.0), "bias": torch.zeros(2)}, file)
    world.barrier()
    if world.is_main:  # the bug
        model.module.load_state_dict(torch.load(file))
    model(torch.ones(1, 3)).sum().backward()
    weights = world.all_gather(model.module.weight.sum().item())
    assert weights[0] == 42.0 != weights[1], "without us: it trains, and differs for ever"

    with pytest.raises(Mismatch, match=r"leaf 'module\.weight'.* on rank 1 against rank 0"):
        allranks.verify(model)
    with pytest.raises(Mismatch):  # the same bug with us: the other rank is somewhere else, and both are told
        allranks.load(file, model.module) if world.is_main else allranks.verify(model)
    with pytest.raises(DoesNotFit, match=r'did you mean: rename=\{"\*": "module\.\*"\}'):
        allranks.load(file, model)
    report = allranks.load(file, model, rename={"*": "module.*"})
    assert world.all_gather(model.module.weight.sum().item()) == (42.0, 42.0)
    assert report.before[0] != report.before[1]
    assert report.after[0] == report.after[1]

    # What the file has not: a new head, by seeds of the ranks' own.
    torch.manual_seed(world.rank)
    bare = torch.nn.ModuleDict({"body": torch.nn.Linear(3, 2), "head": torch.nn.Linear(2, 1)})
    file = shared_tmp_path / "body.pt"
    if world.is_main:
        torch.save({"body.weight": torch.ones(2, 3), "body.bias": torch.ones(2)}, file)
    world.barrier()
    bare.load_state_dict(torch.load(file), strict=False)
    Ddp(bare, init_sync=False)
    heads = world.all_gather(bare["head"].weight.sum().item())
    assert heads[0] != heads[1], "without us: the same file on all ranks, and other models"

    with pytest.raises(Mismatch, match=r"leaf 'head\.weight', float32\[1, 2\], on rank 1 against rank 0"):
        allranks.load(file, bare, allow_missing=["head.*"])
    torch.manual_seed(0)
    bare["head"].reset_parameters()
    report = allranks.load(file, bare, allow_missing=["head.*"])
    assert report.missing == ("head.weight", "head.bias")


def test_a_file_that_one_host_lacks_or_has_otherwise(tmp_path: Path) -> None:
    """On all ranks the same error, be it one rank that cannot read, or several that read different files."""

    def refused(world: allranks.World, kind: type[Exception], says: str, name: str, **known: Any) -> None:
        with pytest.raises(kind, match=says):
            allranks.load(tmp_path / f"{world.rank}" / name, {"w": np.zeros(4, np.float32)}, world=world, **known)

    def run(world: allranks.World) -> None:
        mine = tmp_path / f"{world.rank}"
        mine.mkdir()
        if world.rank != 2:
            save_file({"w": np.full(4, 7.0, np.float32)}, mine / "a.safetensors")
        refused(world, NotThere, "is empty, or does not exist", "a.safetensors")
        save_file({"w": np.ones(4, np.float32), f"{world.rank // 3}": np.ones(1)}, mine / "b.safetensors")
        refused(world, Mismatch, "rank 3 see another file", "b.safetensors", allow_unexpected=["*"])
        save_file({"w": np.full(4, world.rank // 3, np.float32)}, mine / "c.safetensors")
        refused(world, Mismatch, r"leaf 'w', float32\[4\], on rank 3 against ranks 0-2", "c.safetensors")

    assert allranks.SimulatedWorld(4).run(run).errors == {}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.world(n=2, backend="torch")
@pytest.mark.needs("torch")
def test_fsdp_reads_its_part_of_every_format(world: allranks.World, shared_tmp_path: Path) -> None:
    """FSDP2's DTensors: each rank reads half of safetensors, torch's and DCP's files; a CRC is of both halves."""
    import torch
    import torch.distributed.checkpoint as dcp
    from safetensors.torch import save_file as save_torch
    from torch.distributed.fsdp import fully_shard

    def model() -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(300, 400), torch.nn.Linear(400, 300))

    torch.manual_seed(0)
    source = model()
    state = source.state_dict()
    if world.is_main:
        save_torch(state, shared_tmp_path / "a.safetensors")
        torch.save(state, shared_tmp_path / "a.pt")
    dcp.save(fully_shard(model()).state_dict(), checkpoint_id=shared_tmp_path / "other")
    sharded = fully_shard(source)
    dcp.save(sharded.state_dict(), checkpoint_id=shared_tmp_path / "dcp")
    world.barrier()
    for name in ("a.safetensors", "a.pt", "dcp"):
        torch.manual_seed(1)
        here = fully_shard(model())
        report = allranks.load(shared_tmp_path / name, here)
        assert report.read == sum(tensor.nbytes for tensor in state.values()) // 2, "half"
        for path, tensor in here.state_dict().items():
            assert torch.equal(tensor.full_tensor(), sharded.state_dict()[path].full_tensor()), path

    if world.is_main:
        data = bytearray((shared_tmp_path / "a.pt").read_bytes())
        at = data.find(state["0.weight"].numpy().tobytes()[:64])
        data[at + 300_000] ^= 1  # in the half that rank 1 reads
        (shared_tmp_path / "a.pt").write_bytes(data)
    world.barrier()
    with pytest.raises(Damaged, match=r"'0\.weight' is damaged"):
        allranks.load(shared_tmp_path / "a.pt", here)


@pytest.mark.world(n=2, devices=2, backend="jax")
@pytest.mark.needs("jax")
def test_jax_reads_its_part(world: allranks.World, shared_tmp_path: Path) -> None:
    """A global array over four devices of two processes: each process reads half, and the sharding is kept."""
    import jax
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    content = np.arange(4096, dtype=np.float32).reshape(64, 64)
    if world.is_main:
        save_file({"params.w": content, "params.b": content[0]}, shared_tmp_path / "a.safetensors")
    world.barrier()
    mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("x", "y"))
    cut, whole = NamedSharding(mesh, P("x", "y")), NamedSharding(mesh, P())
    described = {
        "params": {
            "w": jax.ShapeDtypeStruct((64, 64), np.float32, sharding=cut),
            "b": jax.ShapeDtypeStruct((64,), np.float32, sharding=whole),
        }
    }
    report = allranks.load(shared_tmp_path / "a.safetensors", described)
    w = report.state["params"]["w"]
    assert w.sharding == cut
    for shard in w.addressable_shards:
        assert (np.asarray(shard.data) == content[shard.index]).all()
    assert report.read == content.nbytes // 2 + 256
