"""Tied weights: saved once; two arrays of a file go into one memory if they hold the same, and are refused if not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file

import allranks
from allranks.checkpoint.checkpointer import Checkpointer
from allranks.errors import Damaged, DoesNotFit, Mismatch
from allranks.world.detect import single_world


class Net(torch.nn.Module):
    """An embedding and a head, of one memory or two."""

    def __init__(self, *, tied: bool, seed: int = 0, device: str = "cpu") -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.emb = torch.nn.Embedding(8, 4, device=device)
        self.head = torch.nn.Linear(4, 8, bias=False, device=device)
        if tied:
            self.head.weight = self.emb.weight


def write(form: str, folder: Path, state: dict[str, torch.Tensor]) -> Path:
    path = folder / f"net.{form}"
    match form:
        case "pt":
            torch.save(state, path)
        case "safetensors":
            save_file({name: value.clone() for name, value in state.items()}, path)
        case "dcp":
            dcp.save(state, checkpoint_id=path, no_dist=True)
        case "run":
            with Checkpointer(path, single_world(), on_sigterm=False) as ckpt:
                ckpt.save(1, {name: value.clone() for name, value in state.items()}, block=True)
    return path


def load(path: Path, into: Any, **options: Any) -> Any:
    return allranks.load(path, into=into, world=single_world(), **options)


@pytest.mark.filterwarnings("ignore")  # DCP's, of processes that there are none of
@pytest.mark.parametrize("form", ["pt", "safetensors", "dcp", "run"])
def test_two_arrays_of_a_file_into_one_memory(tmp_path: Path, form: str) -> None:
    """Equal ones are loaded, of every format; others are refused by name, and nothing is touched."""
    apart, into = Net(tied=False), Net(tied=True, seed=1)
    path = write(form, tmp_path, apart.state_dict())
    before = into.emb.weight.detach().clone()
    with pytest.raises(DoesNotFit, match=r"head\.weight.* is .*emb\.weight"):
        load(path, into)
    assert torch.equal(into.emb.weight, before)
    report = load(path, into, allow_missing=["head.weight"])
    assert torch.equal(into.emb.weight, apart.emb.weight)
    assert report.missing == ("head.weight",)
    with torch.no_grad():
        apart.head.weight.copy_(apart.emb.weight)
    (tmp_path / "equal").mkdir()
    path = write(form, tmp_path / "equal", apart.state_dict())
    for template in (Net(tied=True, seed=1), Net(tied=True, device="meta")):
        assert load(path, template).coverage == 1
        assert template.head.weight is template.emb.weight
        assert torch.equal(template.emb.weight, apart.emb.weight)


def test_damage_is_called_damage(tmp_path: Path) -> None:
    """Where two arrays were equal, and one has changed since."""
    state = Net(tied=True).state_dict()
    path = write("pt", tmp_path, {name: value.clone() for name, value in state.items()})
    data = bytearray(path.read_bytes())
    at = data.rindex(state["emb.weight"].numpy().tobytes())
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(Damaged):
        load(path, Net(tied=True))


def run_of(folder: Path, state: Any) -> Checkpointer:
    with Checkpointer(folder, single_world(), on_sigterm=False) as ckpt:
        ckpt.save(1, state, block=True)
    return Checkpointer(folder, single_world(), read_only=True)


def test_tied_weights_are_saved_once_and_restored_anywhere(tmp_path: Path) -> None:
    """Into tied ones, into two, and where only one of the names is; bytes are those of one."""
    net = Net(tied=True)
    ckpt = run_of(tmp_path, {"net": net, "same": [np.arange(3), np.arange(3)]})
    [file] = tmp_path.glob("checkpoint-1/*.safetensors")
    assert file.stat().st_size == 4096 + net.emb.weight.nbytes + 2 * 24
    tied, apart = Net(tied=True, seed=1), Net(tied=False, seed=2)
    for into in (tied, apart):
        ckpt.restore({"net": into, "same": [np.zeros(3, int), np.zeros(3, int)]})
        assert torch.equal(into.emb.weight, net.emb.weight)
        assert torch.equal(into.head.weight, net.emb.weight)
    assert tied.head.weight is tied.emb.weight
    assert apart.head.weight is not apart.emb.weight
    for name in ("emb.weight", "head.weight"):
        ckpt.restore({"net": {name: torch.zeros(8, 4)}, "same": [np.zeros(3, int)] * 2})
    assert load(tmp_path, Net(tied=False), key="net").coverage == 1


def test_two_leaves_of_a_run_into_one_memory(tmp_path: Path) -> None:
    """Modules and NumPy arrays: different ones are refused before anything is touched."""
    ckpt = run_of(tmp_path, {"net": Net(tied=False), "a": np.zeros(3), "b": np.ones(3), "c": np.ones(3)})
    into, one, two = Net(tied=True, seed=1), np.full(3, 7.0), np.full(3, 8.0)
    before = into.emb.weight.detach().clone()
    template = {"net": into, "a": one, "b": one, "c": two}
    with pytest.raises(DoesNotFit) as error:
        ckpt.restore(template)
    assert {(d.kind, d.path, d.meant) for d in error.value.differences} == {
        ("tied", "b", "a"),
        ("tied", "net/head.weight", "net/emb.weight"),
    }
    with pytest.raises(DoesNotFit, match="2 tied"):
        allranks.checkpoint.read(tmp_path, like=template)
    assert torch.equal(into.emb.weight, before)
    assert one.tolist() == [7] * 3
    ckpt.restore({"net": Net(tied=False), "a": one, "b": two, "c": two})
    assert (one.tolist(), two.tolist()) == ([0] * 3, [1] * 3)


def test_views_of_one_memory_are_no_ties(tmp_path: Path) -> None:
    """A square array and its transpose begin at one byte, and hold other values."""
    square = torch.arange(9.0).reshape(3, 3)
    ckpt = run_of(tmp_path, {"a": square, "b": square.t(), "c": square[0]})
    restored = ckpt.restore({"a": torch.zeros(3, 3), "b": torch.zeros(3, 3), "c": torch.zeros(3)})
    assert restored is not None
    assert torch.equal(restored[0]["a"], square)
    assert torch.equal(restored[0]["b"], square.t())


def views(numbers: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Leaves that share a part of one memory: overlapping, strided, and a square with its transpose."""
    square = torch.from_numpy(numbers[16:32].reshape(4, 4).copy())
    return {
        "first": numbers[:8],
        "second": numbers[5:13],
        "odd": numbers[1:13:2],
        "square": square,
        "transposed": square.t(),
        "beside": numbers[13:16],
    }


def test_views_that_share_a_part_of_their_memory(tmp_path: Path) -> None:
    """What was saved of such views comes back into such views; other values, of which a part would be lost, do not."""
    kept = views(np.arange(32.0))
    into = views(np.zeros(32))
    run_of(tmp_path / "a", kept).restore(into)
    assert all((into[name] == one).all() for name, one in kept.items())
    apart = {name: np.array(one.tolist()) for name, one in kept.items()}
    apart["second"][0], apart["transposed"][0, 1] = 77, 78
    ckpt = run_of(tmp_path / "b", apart)
    for restore in (
        ckpt.restore,
        lambda like: allranks.checkpoint.read(tmp_path / "b", like=like),
        lambda like: load(tmp_path / "b", like),
    ):
        into = views(np.full(32, 5.0))
        with pytest.raises(DoesNotFit) as error:
            restore(into)  # type: ignore[operator]
        names = {part.path for part in error.value.differences}
        assert names & {"first", "second", "odd"}
        assert names & {"square", "transposed"}
        assert "beside" not in names
        assert all((one == 5).all() for one in into.values())


def test_one_jax_array_in_two_places_is_saved_once(tmp_path: Path) -> None:
    """In a template, two places of one array get each their own: nobody changes an array in place."""
    w = jnp.arange(1000.0)
    ckpt = run_of(tmp_path, {"a": w, "b": w, "c": w + 1, "key": jax.random.key(1)})
    (file,) = tmp_path.glob("checkpoint-1/*.safetensors")
    assert file.stat().st_size < 4096 + 3 * w.nbytes
    zero = jnp.zeros(1000)
    restored = ckpt.restore({"a": zero, "b": zero, "c": zero, "key": jax.random.key(0)})
    assert restored is not None
    state, _ = restored
    assert (state["a"] == w).all()
    assert (state["b"] == w).all()
    assert (state["c"] == w + 1).all()


@pytest.mark.world(n=2, backend="torch")
def test_ranks_that_do_not_tie_alike_are_refused(world: allranks.World, shared_tmp_path: Path) -> None:
    """One whose head has lost its tie trains another model; under FSDP, tied parts are saved once."""
    net = Net(tied=world.rank == 0)
    with torch.no_grad():
        net.head.weight.copy_(net.emb.weight)
    with Checkpointer(shared_tmp_path / "a", world) as ckpt:
        with pytest.raises(Mismatch, match=r"'head\.weight' is one memory with 'emb\.weight' on rank 0"):
            ckpt.save(1, net, block=True)
        ckpt.save(1, Net(tied=True), block=True)
    from torch.distributed.fsdp import fully_shard

    whole, cut = Net(tied=True), fully_shard(Net(tied=True))
    with Checkpointer(shared_tmp_path / "b", world) as ckpt:
        ckpt.save(1, cut, block=True)
        sizes = [path.stat().st_size - 4096 for path in shared_tmp_path.glob("b/checkpoint-1/*.safetensors")]
        assert sum(sizes) == whole.emb.weight.nbytes
        other = fully_shard(Net(tied=True, seed=1))
        ckpt.restore(other)
        assert torch.equal(other.emb.weight.full_tensor(), whole.emb.weight)
        assert other.head.weight is other.emb.weight
