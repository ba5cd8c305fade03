"""JAX states over eight devices of one process: any sharding from any sharding, models, keys, donation."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import allranks
from allranks.errors import CannotStore, DoesNotFit
from allranks.storage import MemoryStorage
from allranks.world.detect import single_world

SHAPES = {"matrix": (16, 24), "cube": (8, 16, 4), "vector": (48,), "scalar": ()}


def meshes() -> dict[str, Mesh]:
    devices = np.array(jax.devices())
    assert len(devices) == 8
    return {
        "8": Mesh(devices, ("x",)),
        "4 x 2": Mesh(devices.reshape(4, 2), ("x", "y")),
        "2 x 4 backwards": Mesh(devices[::-1].reshape(2, 4), ("x", "y")),
        "2 of 8": Mesh(devices[5:7], ("x",)),
        "1": Mesh(devices[3:4], ("x",)),
    }


def shardings() -> list[NamedSharding]:
    specs = {
        "8": [P("x"), P(None, "x"), P()],
        "4 x 2": [P("x", "y"), P("y", "x"), P("x"), P(None, "y"), P(("x", "y")), P(("y", "x"))],
        "2 x 4 backwards": [P("x", "y"), P(None, ("x", "y"))],
        "2 of 8": [P("x"), P(None, "x")],
        "1": [P()],
    }
    return [NamedSharding(mesh, spec) for name, mesh in meshes().items() for spec in specs[name]]


def content(name: str, seed: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng([seed, len(name)]).standard_normal(SHAPES[name]).astype(np.float32)


def cut(sharding: NamedSharding, shape: tuple[int, ...]) -> NamedSharding:
    """The sharding for fewer dimensions than it names."""
    return NamedSharding(sharding.mesh, P(*sharding.spec[: len(shape)]))


@pytest.mark.world(n=1, devices=8, timeout=240)
def test_any_sharding_is_restored_to_any_sharding(world: allranks.World) -> None:
    """Every pair, on meshes of other shapes, orders and devices; a template may be arrays or their descriptions."""
    ckpt = allranks.Checkpointer(MemoryStorage(), world)
    every = shardings()
    for step, source in enumerate(every):
        state = {name: jax.device_put(content(name, step), cut(source, shape)) for name, shape in SHAPES.items()}
        ckpt.save(step, state)
    for (step, _), wanted in product(enumerate(every), every):
        template: dict[str, Any] = {
            name: jax.ShapeDtypeStruct(shape, jnp.float32, sharding=cut(wanted, shape))
            for name, shape in SHAPES.items()
        }
        restored = ckpt.restore(template, step=step)
        assert restored is not None
        for name, array in restored[0].items():
            assert array.sharding == cut(wanted, SHAPES[name])
            assert (np.asarray(array) == content(name, step)).all()


def training(key: Any, sharding: NamedSharding) -> dict[str, Any]:
    """What people train: a model, an optimizer's state, keys; every array placed, matrices cut."""
    model = eqx.nn.MLP(8, 8, 16, 2, key=key)
    arrays = eqx.filter(model, eqx.is_array)
    arrays = jax.tree.map(
        lambda a: jax.device_put(a, sharding if a.ndim == 2 else NamedSharding(sharding.mesh, P())), arrays
    )
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(optax.cosine_decay_schedule(0.1, 10)))
    return {
        "model": arrays,
        "optimizer": optimizer.init(arrays),
        "key": jax.random.key(7),
        "keys": jax.device_put(
            jax.random.split(jax.random.key(8, impl="rbg"), 8), NamedSharding(sharding.mesh, P("x"))
        ),
        "weak": jnp.asarray(2.0) * 1,
        "loss_scale": jnp.asarray(0.5, jnp.bfloat16),
        "epoch": 3,
        "note": None,
    }


def bits(leaf: Any) -> bytes:
    leaf = jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf
    return np.asarray(leaf).tobytes()


def assert_same(one: Any, other: Any, *, placed: Any) -> None:
    """The same values, placed (and weak) as in another tree."""
    leaves = [jax.tree_util.tree_leaves_with_path(tree) for tree in (one, other, placed)]
    for (path, a), (_, b), (_, c) in zip(*leaves, strict=True):
        if not isinstance(a, jax.Array):
            assert a == b, path
            continue
        assert (a.shape, a.dtype, a.sharding) == (b.shape, b.dtype, c.sharding), path
        assert getattr(a, "weak_type", None) == getattr(c, "weak_type", None), path
        assert bits(a) == bits(b), path


@pytest.mark.world(n=1, devices=8)
def test_a_training_comes_back(world: allranks.World, shared_tmp_path: Path) -> None:
    """Equinox model, Optax state, PRNG keys of two kinds, weak types; on another mesh too; keys draw the same again."""
    cut_by_rows, cut_both = (NamedSharding(meshes()[m], s) for m, s in (("8", P("x")), ("4 x 2", P("y", "x"))))
    state = training(jax.random.key(0), cut_by_rows)
    with allranks.Checkpointer(shared_tmp_path, world) as ckpt:
        ckpt.save(1, state)
        other = training(jax.random.key(1), cut_both)
        for template in (state, other):
            restored = ckpt.restore(template)
            assert restored is not None
            assert jax.tree.structure(restored[0]) == jax.tree.structure(state)
            assert_same(restored[0], state, placed=template)
        draw = jax.random.uniform(restored[0]["keys"][3], (4,))
        assert (np.asarray(draw) == np.asarray(jax.random.uniform(state["keys"][3], (4,)))).all()

        wider = eqx.tree_at(lambda model: model.layers[0].bias, state["model"], jnp.zeros(32))
        with pytest.raises(
            DoesNotFit, match=r"(?s)1 reshaped.*'model/layers/0/bias': \[16\] in the checkpoint, \[32\]"
        ):
            ckpt.restore({**state, "model": wider})
        wrong_kind = {**state, "key": jax.random.key(7, impl="rbg")}
        with pytest.raises(DoesNotFit, match=r"'key': .*fry"):
            ckpt.restore(wrong_kind)
        with pytest.raises(CannotStore, match="function"):
            ckpt.save(2, {"activation": jax.nn.relu})


@pytest.mark.world(n=1, devices=8)
def test_a_state_may_be_donated_right_after_save(world: allranks.World) -> None:
    """Fifty steps that each give their buffers to the next while the save of the last goes on: none is torn."""
    sharding = NamedSharding(meshes()["8"], P("x"))
    step_fn = jax.jit(lambda tree: jax.tree.map(lambda a: a + 1, tree), donate_argnums=0)
    ckpt = allranks.Checkpointer(MemoryStorage(), world)
    state = {name: jax.device_put(np.zeros((64, 512), np.float32), sharding) for name in "abcd"}
    for step in range(50):
        ckpt.save(step, state)
        given = state
        state = step_fn(state)
        for leaf in given.values():
            leaf.delete()  # where JAX has not taken the buffer, because it is still read
    ckpt.close()
    for step in range(50):
        restored = ckpt.restore(state, step=step)
        assert restored is not None
        assert all((np.asarray(leaf) == step).all() for leaf in restored[0].values()), step


@pytest.mark.world(n=1, devices=8)
def test_a_state_that_was_donated_before_is_refused(world: allranks.World) -> None:
    """By name, before a byte is written; as a template it still says what to make."""
    ckpt = allranks.Checkpointer(MemoryStorage(), world)
    state = {"w": jnp.ones(1000), "key": jax.random.key(1)}
    ckpt.save(1, state, block=True)
    for leaf in state.values():
        leaf.delete()  # as a donation does, where it can
    with pytest.raises(CannotStore, match=r"'key' is deleted: it was donated .*; 'w' is deleted"):
        ckpt.save(2, state)
    restored = ckpt.restore({"w": state["w"], "key": jax.random.key(2)})
    assert restored is not None
    assert (np.asarray(restored[0]["w"]) == 1).all()
    assert ckpt.steps() == (1,)


OPTAX: dict[str, Any] = {
    "adafactor": lambda: optax.adafactor(0.1, min_dim_size_to_factor=2),
    "adamw": lambda: optax.adamw(0.1),
    "adam": lambda: optax.adam(0.1),
    "sgd": lambda: optax.sgd(0.1, momentum=0.9, nesterov=True),
    "lion": lambda: optax.lion(0.1),
    "lamb": lambda: optax.lamb(0.1),
    "rmsprop": lambda: optax.rmsprop(0.1, centered=True, momentum=0.9),
    "adagrad": lambda: optax.adagrad(0.1),
    "nadam": lambda: optax.nadam(0.1),
    "radam": lambda: optax.radam(0.1),
    "novograd": lambda: optax.novograd(0.1),
}
SAMPLE = 1


@pytest.mark.parametrize(
    "name", [*list(OPTAX)[:SAMPLE], *(pytest.param(one, marks=pytest.mark.soak) for one in list(OPTAX)[SAMPLE:])]
)
def test_every_optimizer_of_optax_goes_on_where_it_was(name: str, tmp_path: Path) -> None:
    """A fresh state takes the saved one: the next update is the same, and not that of a fresh state."""
    made = OPTAX[name]()
    params = {"w": jnp.arange(6.0).reshape(2, 3), "b": jnp.ones(3)}
    gradients = jax.tree.map(lambda one: one + 0.5, params)
    state = made.init(params)
    for _ in range(2):
        _, state = made.update(gradients, state, params)
    with allranks.Checkpointer(tmp_path, single_world(), on_sigterm=False) as ckpt:
        ckpt.save(1, {"opt": state}, block=True)
        restored = ckpt.restore({"opt": made.init(params)})
    assert restored is not None
    assert jax.tree.structure(restored[0]["opt"]) == jax.tree.structure(state)
    assert all(map(np.array_equal, jax.tree.leaves(restored[0]["opt"]), jax.tree.leaves(state)))
    assert not all(map(np.array_equal, jax.tree.leaves(state), jax.tree.leaves(made.init(params))))
    expected, found = (made.update(gradients, one, params)[0] for one in (state, restored[0]["opt"]))
    assert all(map(np.array_equal, jax.tree.leaves(found), jax.tree.leaves(expected)))
