"""Fingerprints and ``verify`` of JAX arrays: on 8 devices of one process, and on real ranks."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from off_host import pretend

import allranks
from allranks.arrays.detect import open_tree
from allranks.consistency.digests import fingerprints_of_copies
from allranks.consistency.fingerprint import total_fingerprint
from allranks.errors import Mismatch

DTYPES = ["bool", "int4", "float8_e4m3fn", "bfloat16", "float32", "int64", "complex64", "complex128"]
SPECS = [P(), P("a"), P(None, "b"), P("b", "a"), P(("a", "b"))]


def mesh_of(shape: tuple[int, ...], *axes: str) -> Mesh:
    return Mesh(np.array(jax.devices()).reshape(shape), axes)


def any_bits(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    values = np.random.default_rng(0).integers(-8 if dtype != "bool" else 0, 8, shape)
    return values.astype(dtype) if dtype == "int4" else values.astype(dtype) * np.array(1.5, jnp.dtype(dtype))


@pytest.mark.world(n=1, devices=8)
def test_one_value_whatever_the_sharding(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the devices and on the host, of any dtype in any sharding: the shards add up to one value, copies agree."""
    mesh = mesh_of((4, 2), "a", "b")
    with jax.enable_x64(True):
        arrays = {dtype: any_bits(dtype, (8, 8)) for dtype in DTYPES}
        arrays |= {"none": np.zeros((0, 8), np.float32), "thick": any_bits("float32", (8, 8, 3))}
        cuts = [NamedSharding(mesh, spec) for spec in SPECS]
        tree = {name: [jax.device_put(array, cut) for cut in cuts] for name, array in arrays.items()}
        tree["scalar"] = [jax.device_put(np.float64(3), NamedSharding(mesh, P()))]
    opened = open_tree(tree, rank=0, size=1)
    copies = [opened.copies_of_array(number) for number in range(len(opened.declared_arrays))]
    on_host = fingerprints_of_copies(opened.declared_arrays, copies)
    pretend(monkeypatch)
    on_devices = fingerprints_of_copies(
        opened.declared_arrays, [opened.copies_of_array(number) for number in range(len(copies))]
    )
    values: dict[str, set[object]] = {}
    for one, of, host, device in zip(opened.declared_arrays, copies, on_host, on_devices, strict=True):
        assert len(of) == 8
        by_cell = dict(zip((copy.cell for copy in of), host, strict=True))
        assert host == device == [by_cell[copy.cell] for copy in of], one
        values.setdefault(one.path.split("/")[0], set()).add(total_fingerprint(by_cell.values()))
    assert all(len(found) == 1 for found in values.values()), values
    assert len(set.union(*values.values())) == len(values)


@pytest.mark.world(n=1, devices=4)
@pytest.mark.usefixtures("world")
def test_one_process_compares_the_copies_of_its_devices() -> None:
    """No other rank is needed to see that one device of four has another value; of two and two it is a tie."""
    odd = array_of(mesh_of((4,), "d"), P(), lambda device: np.full(3, device == 2, np.float32))
    one = r"leaf 'w', float32\[3\], on rank 0 \(cpu:2\) against rank 0 \(cpu:0, cpu:1, cpu:3\)"
    with pytest.raises(Mismatch, match=one):
        allranks.verify({"w": odd})
    verdict = allranks.verify({"w": odd}, on_mismatch="repair")
    assert verdict is not None
    assert all(not np.asarray(shard.data).any() for shard in verdict.state["w"].addressable_shards)
    halves = array_of(mesh_of((4,), "d"), P(), lambda device: np.full(3, device % 2, np.float32))
    with pytest.raises(Mismatch, match="a tie"):
        allranks.verify({"w": halves})


def array_of(mesh: Mesh, spec: P, value: Any) -> jax.Array:
    """An array that says it is sharded so, of which each device holds what ``value(device)`` has at its place."""
    sharding = NamedSharding(mesh, spec)
    whole = value(0)
    parts = [
        jax.device_put(value(device.id)[index], device)
        for device, index in sharding.addressable_devices_indices_map(whole.shape).items()
    ]
    return jax.make_array_from_single_device_arrays(whole.shape, sharding, parts)


@pytest.mark.world(n=4, devices=2, backend="jax")
def test_a_bit_on_one_rank_is_found_where_jax_sees_nothing(
    world: allranks.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replicated, cut and copied, keys: JAX's own assertion passes; we name rank, device, leaf, part and element."""
    mesh = mesh_of((4, 2), "copy", "cut")
    devices = [device.id for device in jax.devices()]
    values = np.arange(32, dtype=np.float32).reshape(8, 4)

    def flipped(where: int) -> Any:
        def value(device: int) -> np.ndarray:
            mine = values.copy()
            if device == devices[where]:
                mine.view(np.uint32)[1, 1] ^= 1
            return mine

        return value

    good = {"ok": array_of(mesh, P("copy", "cut"), lambda _: values), "key": jax.random.key(3), "step": 5}
    multihost_utils.assert_equal(array_of(mesh, P(), flipped(5)), "without us: no complaint")
    for off_host in (False, True):
        if off_host:
            pretend(monkeypatch)
        verdict = allranks.verify(good)
        assert verdict is not None
        assert verdict.unreplicated == ("ok",)
        whole = r"leaf 'w', float32\[8, 4\], on rank 2 \(.*:\d+\) against ranks 0-1, 3, rank 2"
        with pytest.raises(Mismatch, match=whole) as a:
            allranks.verify({**good, "w": array_of(mesh, P(), flipped(5))})
        cut = r"leaf 'w'\[0:8, 0:2\], float32\[8, 4\], on rank 3 against ranks 0-2 \[rank 3: 1 element, first \[1, 1\]"
        with pytest.raises(Mismatch, match=cut) as b:
            allranks.verify({**good, "w": array_of(mesh, P(None, "cut"), flipped(6))})
        with pytest.raises(Mismatch, match=r"leaf 'key', uint32\[2\] key<fry>, on rank 1 against ranks 0, 2-3") as c:
            allranks.verify({**good, "key": jax.random.key(3 + (world.rank == 1))})
        assert (a.value.ranks, b.value.ranks, c.value.ranks) == ((2,), (3,), (1,))

    verdict = allranks.verify({**good, "w": array_of(mesh, P(None, "cut"), flipped(6))}, on_mismatch="repair")
    assert verdict is not None
    for shard in verdict.state["w"].addressable_shards:
        assert (np.asarray(shard.data) == values[shard.index]).all()
