"""Flax NNX, Equinox, Optax and Orbax on two processes of two devices each: their own classes, as people have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from safetensors.numpy import save_file

import allranks
from allranks.errors import CollectiveOnOneRank, Mismatch, RemoteError


class Net(nnx.Module):
    """Parameters, a running mean, streams of random numbers, and a setting."""

    def __init__(self, seed: int) -> None:
        rngs = nnx.Rngs(seed, dropout=seed + 1)
        self.up = nnx.Linear(8, 16, rngs=rngs)
        self.norm = nnx.BatchNorm(16, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)
        self.layers = nnx.List([nnx.Linear(16, 8, rngs=rngs)])
        self.scale = 2.0


def placed(array: Any, *, says: int = 0) -> Any:
    """A global array over all devices, cut where it divides; ``says`` is added to what this process' devices hold."""
    if jax.numpy.issubdtype(array.dtype, jax.dtypes.prng_key):
        return array
    whole = np.asarray(array) + np.asarray(says, array.dtype)
    spec = P("data") if array.ndim and array.shape[0] % jax.device_count() == 0 else P()
    sharding = NamedSharding(Mesh(np.array(jax.devices()), ("data",)), spec)
    return jax.make_array_from_callback(array.shape, sharding, lambda index: whole[index])


def training(seed: int) -> dict[str, Any]:
    """What a loop has: a module of NNX and its optimizer, one of Equinox and a state of Optax."""
    model = Net(seed)
    opt = nnx.Optimizer(model, optax.adamw(0.1), wrt=nnx.Param)
    for node in (model, opt):
        nnx.update(node, jax.tree.map(placed, nnx.state(node)))
    other = eqx.nn.MLP(3, 2, 4, 1, key=jax.random.key(seed))
    moments = jax.tree.map(lambda x: x + seed, optax.adam(0.1).init(eqx.filter(other, eqx.is_array)))
    return {"model": model, "opt": opt, "mlp": other, "moments": moments}


@pytest.mark.world(n=2, devices=2, backend="jax", timeout=240)
@pytest.mark.needs("jax", "equinox", "flax", "safetensors")
def test_modules_and_optimizers_go_as_they_are(world: allranks.World, shared_tmp_path: Path) -> None:
    """Saved, restored in place, compared by name, loaded from another's file, and from a description."""
    state, here = training(0), training(1)
    kernel = np.arange(128, dtype=np.float32).reshape(8, 16)
    if world.is_main:
        save_file({"up.kernel": kernel, "up.bias": np.ones(16, np.float32)}, shared_tmp_path / "up.safetensors")
        layers = dict(enumerate(state["mlp"].layers))
        arrays = {
            f"layers.{n}.{k}": np.asarray(getattr(one, k)) for n, one in layers.items() for k in ("weight", "bias")
        }
        save_file(arrays, shared_tmp_path / "mlp.safetensors")
    allranks.verify(state)
    with allranks.Checkpointer(shared_tmp_path / "run", world) as ckpt:
        ckpt.save(1, state, block=True)
        restored = ckpt.restore(here)
    assert restored is not None
    assert restored[0]["model"] is here["model"], "in place"
    assert here["model"].up.kernel.sharding.spec == P("data")
    assert allranks.tree_digest(restored[0]) == allranks.tree_digest(state)
    assert restored[0]["mlp"].activation is state["mlp"].activation

    other = allranks.load(shared_tmp_path / "mlp.safetensors", eqx.nn.MLP(3, 2, 4, 1, key=jax.random.key(5))).state
    assert eqx.tree_equal(other, state["mlp"])
    report = allranks.load(
        shared_tmp_path / "up.safetensors", here["model"], rename={"*": "*.value"}, allow_missing=["[!u]*"]
    )
    assert report.state is here["model"]
    part = here["model"].up.kernel[...].addressable_shards[0]
    assert (np.asarray(part.data) == kernel[part.index]).all()

    mesh = Mesh(np.array(jax.devices()), ("data",))
    graph, described = nnx.get_abstract_model(lambda: Net(2), mesh)
    report = allranks.load(shared_tmp_path / "run", {"model": described}, allow_unexpected=["opt*", "m*"])
    merged = nnx.merge(graph, report.state["model"])
    assert (np.asarray(merged.up.bias[...]) == np.asarray(state["model"].up.bias[...].addressable_data(0))[0]).all()

    count = state["model"].drop.rngs.count
    count.set_value(placed(count[...], says=world.rank))
    with pytest.raises(Mismatch, match="leaf 'model/drop/rngs/count/value'"):
        allranks.verify(state)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.world(n=2, devices=2, backend="jax", timeout=240)
@pytest.mark.needs("jax", "orbax")
def test_orbax_between_two_comparisons(world: allranks.World, shared_tmp_path: Path) -> None:
    """Without us a copy that has drifted is saved or lost, as it happens, and a save on one rank waits for ever."""
    good = {"cut": placed(np.arange(64.0, dtype=np.float32).reshape(8, 8)), "step": placed(np.int32(7))}
    drifted = {**good, "step": placed(np.int32(7), says=world.rank)}
    like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), good)
    with ocp.StandardCheckpointer() as saver:
        saver.save(shared_tmp_path / "drifted", drifted)
        saver.wait_until_finished()
        lost = saver.restore(shared_tmp_path / "drifted", like)
        assert set(world.all_gather(int(lost["step"].addressable_data(0)))) == {7}, "without us: no complaint"
        with pytest.raises(Mismatch, match="leaf 'step'"):
            allranks.verify(drifted)
        allranks.verify(good)
        saver.save(shared_tmp_path / "good", good)
        saver.wait_until_finished()
        back = saver.restore(shared_tmp_path / "good", like)
        assert allranks.tree_digest(back) == allranks.tree_digest(good)
        theirs, here = (nnx.Linear(8, 4, rngs=nnx.Rngs(seed)) for seed in (0, 1))
        for module in (theirs, here):
            nnx.update(module, jax.tree.map(placed, nnx.state(module)))
        saver.save(shared_tmp_path / "nnx", nnx.state(theirs))
    allranks.load(shared_tmp_path / "nnx", here)
    assert allranks.tree_digest(here) == allranks.tree_digest(theirs), "under the names that Orbax gave them"
    report = allranks.load(shared_tmp_path / "good", like)
    assert allranks.tree_digest(report.state) == allranks.tree_digest(good)
    with pytest.raises((CollectiveOnOneRank, RemoteError), match=r"CollectiveOnOneRank|would never join"):
        world.on_main(lambda: ocp.StandardCheckpointer().save(shared_tmp_path / "alone", good))
