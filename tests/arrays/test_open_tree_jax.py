"""JAX arrays and keys in checkpoints: cut in every way, filled without a copy, safe from donation."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P
from trees import carried, fill, wholes

import allranks
from allranks.arrays.base import RankSplit
from allranks.arrays.detect import open_tree
from allranks.errors import CannotStore

SPECS = {
    "fsdp": P(("a", "b")),
    "tensor": P(None, "b"),
    "both": P("a", "b"),
    "swapped": P("b", "a"),
    "partly": P("a"),
    "replicated": P(),
}


def mesh_of(shape: tuple[int, ...] = (-1,), *axes: str, order: Any = slice(None)) -> Mesh:
    return Mesh(np.array(jax.devices())[order].reshape(shape), axes)


def same(one: Any, other: Any) -> bool:
    """Equal in values, dtype, sharding and all that makes an array behave as it does."""
    if jnp.issubdtype(one.dtype, jax.dtypes.prng_key):
        bits = [np.asarray(jax.random.key_data(keys)).tolist() for keys in (one, other)]
        return (one.dtype, one.sharding, one.committed, bits[0]) == (
            other.dtype,
            other.sharding,
            other.committed,
            bits[1],
        )
    return (
        (one.dtype, one.shape, one.sharding, one.committed, one.weak_type)
        == (other.dtype, other.shape, other.sharding, other.committed, other.weak_type)
    ) and np.asarray(one).tobytes() == np.asarray(other).tobytes()


@pytest.mark.world(n=1, devices=8)
def test_every_sharding_comes_back() -> None:
    """From each to each, on a mesh whose devices are in no order, with every dtype; bytes, sharding, commitment."""
    values = np.arange(64, dtype=np.float32).reshape(8, 8)
    meshes = [mesh_of((4, 2), "a", "b", order=[3, 1, 0, 2, 7, 6, 5, 4]), mesh_of((2, 4), "a", "b")]
    shardings = [NamedSharding(mesh, spec) for mesh in meshes for spec in SPECS.values()]
    for number, sharding in enumerate(shardings):
        state = jax.device_put(values, sharding)
        for other in [*shardings[number::3], SingleDeviceSharding(jax.devices()[5])]:
            assert same(carried(state, jax.device_put(np.zeros_like(values), other)), jax.device_put(values, other))
    for dtype in ("bool", "int4", "uint8", "bfloat16", "float8_e4m3fn", "float8_e5m2", "complex64", "int32"):
        state = {"cut": jax.device_put(jnp.asarray(values % 2, dtype), shardings[2]), "none": jnp.zeros((0, 8), dtype)}
        back = carried(state, jax.tree.map(jnp.zeros_like, state))
        assert same(back["cut"], state["cut"])
        assert same(back["none"], state["none"])


@pytest.mark.world(n=1, devices=8)
def test_an_array_of_local_devices_is_every_ranks_own() -> None:
    """It is cut as its devices are, and all ranks hold each part; equal splits are one object."""
    mesh = mesh_of((4, 2), "a", "b")
    arrays = {name: jax.device_put(jnp.zeros((8, 8)), NamedSharding(mesh, spec)) for name, spec in SPECS.items()}
    declared = {leaf.path: leaf for leaf in open_tree(arrays, rank=1, size=2).declared_arrays}
    assert {name: leaf.split.cuts for name, leaf in declared.items()} == {
        "both": (4, 2),
        "fsdp": (8, 1),
        "partly": (4, 1),
        "replicated": (1, 1),
        "swapped": (2, 4),
        "tensor": (1, 2),
    }
    assert {holders for leaf in declared.values() for holders in leaf.split.holders} == {(0, 1)}
    taller = jax.device_put(jnp.zeros((16, 8)), NamedSharding(mesh, P("a")))
    assert open_tree(taller, rank=1, size=2).declared_arrays[0].split is declared["partly"].split


@pytest.mark.world(n=1, devices=8)
def test_donation_and_deletion_do_not_touch_what_is_held() -> None:
    """Bytes that were looked at, not copied, stay as they were while the program goes on."""
    cut = NamedSharding(mesh_of((8,), "x"), P("x"))
    step = jax.jit(lambda x: x * 0 - 1, donate_argnums=0)
    for number in range(150):  # times two shardings
        for sharding in (cut, SingleDeviceSharding(jax.devices()[0])):
            state = jax.device_put(jnp.full((8, 2048), float(number)), sharding)
            opened = open_tree(state, rank=0, size=1)
            held = [opened.cell_bytes(0, at) for at in range(len(opened.declared_arrays[0].split.holders))]
            assert not any(one.mutable for one in held)
            assert held[0].data.ctypes.data == state.addressable_data(0).unsafe_buffer_pointer()
            if number % 3 == 0:
                state.delete()
            else:
                state = step(state)
            noise = [jnp.full((8, 2048), -2.0).block_until_ready() for _ in range(4)]
            assert all((one.data.view(np.float32) == number).all() for one in held), noise


@pytest.mark.world(n=1, devices=8)
def test_arrays_are_made_around_the_buffers_that_were_filled() -> None:
    """One buffer for all devices that hold the same; a donation of the array then leaves its replicas whole."""
    mesh = mesh_of((2, 4), "a", "b")
    for spec, count in ((P(), 1), (P("a"), 2), (P("a", "b"), 8)):
        state = jax.device_put(np.arange(64.0 * 512, dtype=np.float32).reshape(64, 512), NamedSharding(mesh, spec))
        opened = open_tree(jnp.zeros_like(state), rank=0, size=1, for_restore=True)
        assert len(opened.targets_of_array(0)) == count
        fill(opened, {"": np.asarray(state)})
        back: Any = opened.rebuild_tree({})
        places = {target.buffer.ctypes.data for target in opened.targets_of_array(0)}
        assert {shard.data.unsafe_buffer_pointer() for shard in back.addressable_shards} == places
        assert same(jax.jit(lambda x: x + 1, donate_argnums=0)(back), state + 1)


@pytest.mark.world(n=1, devices=4)
def test_arrays_behave_as_before() -> None:
    """Where nobody has put an array, it may meet any mesh; weak types stay weak, 64 bits stay 64."""
    whole = NamedSharding(mesh_of((4,), "x"), P())
    with jax.enable_x64(True):
        wide = jnp.arange(3.0) / 3
        assert wide.dtype == np.float64
    weak = jax.device_put(jax.jit(lambda: jnp.asarray(2.0))(), whole)
    state = {"count": jnp.zeros((), jnp.int32) + 3, "weak": jnp.asarray(2.0), "wide": wide, "cut": weak}
    back = carried(state, jax.tree.map(lambda x: x, state))
    assert all(same(back[name], state[name]) for name in state)
    assert (back["count"].committed, back["weak"].weak_type, back["cut"].weak_type) == (False, True, True)
    assert int(back["count"] + jax.device_put(jnp.zeros((), jnp.int32), whole)) == 3


@pytest.mark.world(n=1, devices=4)
def test_keys_and_descriptions_are_templates() -> None:
    """A PRNG key is its bits and its kind; a ShapeDtypeStruct with a sharding becomes an array, and holds no bytes."""
    cut = NamedSharding(mesh_of((4,), "x"), P("x"))
    keys = jax.device_put(jax.random.split(jax.random.key(1), 4), cut)
    rbg = jax.device_put(jax.random.key(3, impl="rbg"), jax.devices()[1])
    state = {"keys": keys, "rbg": rbg, "w": jax.device_put(jnp.arange(8.0), cut)}
    first, second, _ = open_tree(state, rank=0, size=1).declared_arrays
    assert (first.shape, first.dtype, first.kind, first.split.cuts) == ((4, 2), "uint32", "key<fry>", (4, 1))
    assert (second.shape, second.kind) == ((4,), "key<rbg>")
    described = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state)
    for template in (jax.tree.map(lambda x: x, state), described):
        back = carried(state, template)
        assert same(back["keys"], keys)
        assert template is described or same(*map(jax.random.key_data, (back["keys"], keys)))
        assert same(back["rbg"], state["rbg"])
        assert same(back["w"], state["w"])
    with pytest.raises(CannotStore, match="ShapeDtypeStruct, which holds no bytes"):
        open_tree(described, rank=0, size=1)
    with pytest.raises(CannotStore, match="without sharding"):
        open_tree(jax.ShapeDtypeStruct((1,), float), rank=0, size=1, for_restore=True)


@pytest.mark.parametrize("bad", ["tracer", "float0"])
def test_arrays_without_bytes_are_refused(bad: str) -> None:
    def inside(x: jax.Array) -> jax.Array:
        open_tree({"x": x}, rank=0, size=1)
        return x

    with pytest.raises(CannotStore, match="'x' is " + ("a tracer" if bad == "tracer" else "an array of")):
        jax.jit(inside)(1.0) if bad == "tracer" else inside(np.zeros(2, jax.dtypes.float0))  # type: ignore[arg-type]


@pytest.mark.world(n=4, devices=2)
def test_all_ranks_see_one_split(world: allranks.World) -> None:
    """Arrays over all processes: each holds its parts, all agree who holds what, and the parts are the whole."""
    mesh = mesh_of((4, 2), "a", "b", order=[0, 4, 1, 5, 2, 6, 3, 7])
    values = np.arange(128.0, dtype=np.float32).reshape(16, 8)
    state = {
        name: jax.make_array_from_callback(values.shape, NamedSharding(mesh, spec), lambda index: values[index])
        for name, spec in SPECS.items()
    }
    state["keys"] = jax.jit(lambda: jax.random.split(jax.random.key(1), 8), out_shardings=NamedSharding(mesh, P("a")))()
    opened = open_tree(state, rank=world.rank, size=world.size)
    said = [[leaf.path, leaf.split.cuts, leaf.split.holders] for leaf in opened.declared_arrays]
    assert world.agree(said) is not None
    splits = {leaf.path: leaf.split for leaf in opened.declared_arrays}
    assert splits["replicated"] == RankSplit((1, 1), ((0, 1, 2, 3),))
    assert splits["partly"] == RankSplit((4, 1), ((0, 2), (0, 2), (1, 3), (1, 3)))
    assert splits["both"].holders == ((0,), (2,), (0,), (2,), (1,), (3,), (1,), (3,))
    mine = wholes(opened, world.rank)
    for path in SPECS:
        held = {int(at) for at in np.unique(mine[path])}
        seen = world.all_gather(sorted(held), name=path)
        assert set().union(*map(set, seen)) == set(range(128))

    blank = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state)
    into = open_tree(blank, rank=world.rank, size=world.size, for_restore=True)
    fill(into, dict.fromkeys(SPECS, values) | {"keys": mine["keys"]})
    back: Any = into.rebuild_tree({})
    assert all(back[name].sharding == state[name].sharding for name in state)
    assert all(bool(jax.jit(lambda x, y: (x == y).all())(back[name], state[name])) for name in SPECS)
    assert back["keys"].dtype == state["keys"].dtype
