"""JAX ranks that part in one way or another: ``lockstep_jax.py CASE,CASE,... [without | bare | unknown | process]``.

Under lockstep, or without; bare: with wrapped functions and no block; unknown: in a JAX whose inside has moved;
process: as a program that does not import allranks is watched, with nothing wrapped.
Each rank prints RESULT and, by case, what it got: numbers, or the error; when the bad call was, and how long ago.
Without, a rank that hangs ends after 10 s.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import allranks
from allranks.gate.lockstep.api import watch_process

cases, how = sys.argv[1].split(","), "".join(sys.argv[2:])
ours = how != "without"
if how == "unknown":
    # A setting of ours has no effect. Those that JAX itself makes later must have theirs.
    real = jax._src.config.config_ext.Config

    class Config:
        def __call__(self, name: str, *values: Any, **options: Any) -> Any:
            return real(name, *values, **({} if "allranks" in name else options))

        def __getitem__(self, kind: Any) -> Any:
            return self

    jax._src.config.config_ext.Config = Config()
patience = 3 if "absent" in cases else 60
if ours:
    world = allranks.init(backend="jax")
else:
    address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    jax.distributed.initialize(address, int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"]))
rank, odd = jax.process_index(), jax.process_index() == jax.process_count() - 1
mesh = Mesh(np.array(jax.devices()), "d")
split, whole = NamedSharding(mesh, P("d")), NamedSharding(mesh, P())
start = [0.0]


def wrap(fn: Any) -> Any:
    return allranks.lockstep(fn, timeout=patience) if ours and how != "process" else fn


def over(reduce: Callable[..., Any], name: str, scale: float = 1.0, *, check_vma: bool = True) -> Callable[[Any], Any]:
    def body(x: Any) -> Any:
        return reduce(x.sum() * scale, "d")

    body.__name__ = name
    return wrap(jax.jit(jax.shard_map(body, mesh=mesh, in_specs=P("d"), out_specs=P(), check_vma=check_vma)))


def rows(per_rank: int = 1, dtype: Any = np.float32) -> Any:
    mine = np.full((per_rank, 4), rank + 1, dtype)
    return jax.make_array_from_process_local_data(split, mine)


add, largest, double = over(jax.lax.psum, "add"), over(jax.lax.pmax, "largest"), over(jax.lax.psum, "add", 2.0)
gather = over(lambda x, axis: jax.lax.all_gather(x, axis).sum(), "gather", check_vma=False)


def number(found: Any) -> float:
    return float(found.addressable_data(0))


def warm(rounds: int = 6) -> None:
    for _ in range(rounds):
        number(add(rows()))
        number(largest(rows()))


def first_order() -> list[float]:
    return [number(f(rows())) for f in ((largest, add) if odd else (add, largest))]


def first_shape() -> list[float]:
    return [number(add(rows(2 if odd else 1)))]


def first_dtype() -> list[float]:
    return [number(add(rows(dtype=np.int32 if odd else np.float32)))]


def first_op() -> list[float]:
    return [number((gather if odd else add)(rows()))]


def first_reduce_op() -> list[float]:
    return [number((largest if odd else add)(rows()))]


def first_constant() -> list[float]:
    return [number((double if odd else add)(rows()))]


def first_array() -> list[float]:
    """An array that the function closes over: too large for the program's text."""
    weights = np.linspace(0.0, 1.0, 4096, dtype=np.float32)
    weights[-1] += odd
    return [number(over(lambda x, axis: jax.lax.psum((x * weights).sum(), axis), "weighted")(rows()))]


def first_scan() -> list[float]:
    """A learning rate that the body of a scan closes over."""
    rate = 0.1 if odd else 0.01

    def train(x: Any, axis: str) -> Any:
        return jax.lax.scan(lambda w, _: (w - rate * jax.lax.psum(x, axis), None), jnp.float32(1), length=3)[0]

    return [number(over(train, "train", check_vma=False)(rows()))]


def static() -> list[float]:
    """A static argument of which all ranks know both values."""
    scaled = wrap(jax.jit(lambda x, scale: (x * scale).sum(), static_argnums=1, out_shardings=whole))
    for scale in (2, 3, 2, 3):
        number(scaled(rows(), scale))
    start[0] = time.monotonic()
    return [number(scaled(rows(), 3 if odd else 2))]


def unwrapped_shape() -> list[float]:
    """A shape for which all ranks have called the function, but not what wraps it."""
    bare = jax.jit(lambda x: x.sum(), out_shardings=whole)
    total = wrap(bare)
    for _ in range(3):
        number(total(rows()))
        number(bare(rows(2)))
    return [number(total(rows(2 if odd else 1)))]


def value() -> list[float]:
    """A number that jit replicates: equal on all ranks, as JAX takes it."""
    scaled = wrap(jax.jit(lambda x, rate: (x * rate["rate"]).sum(), out_shardings=whole))
    return [number(scaled(rows(), {"rate": 0.25 if odd else 0.5}))]


def eager_value() -> list[float]:
    """The same in a program that nobody has wrapped."""
    return [number(jax.device_put(rows().sum() * (3.0 if odd else 2.0), whole))]


def pmap_static() -> list[float]:
    scaled = wrap(jax.pmap(lambda x, scale: jax.lax.psum(x * scale, "i"), "i", static_broadcasted_argnums=1))
    ones = np.ones((jax.local_device_count(), 3))
    for scale in (2, 3, 2, 3):
        scaled(ones, scale)
    return [float(scaled(ones, 3 if odd else 2)[0, 0])]


def setting() -> list[float]:
    """A setting of JAX's under which all ranks have called before."""
    product = wrap(jax.jit(lambda x: (x @ x.T).sum(), out_shardings=whole))
    for precision in ("float32", "bfloat16", "float32", "bfloat16"):
        with jax.default_matmul_precision(precision):
            number(product(rows()))
    with jax.default_matmul_precision("float32" if odd else "bfloat16"):
        return [number(product(rows()))]


def first_extra() -> list[float]:
    found = [number(add(rows()))] if odd else []
    return [*found, number(add(rows())), number(largest(rows()))]


def order() -> list[float]:
    warm()
    start[0] = time.monotonic()
    return first_order()


def shape() -> list[float]:
    warm()
    start[0] = time.monotonic()
    return first_shape()


def known_shape() -> list[float]:
    warm()
    for per_rank in (2, 1, 2, 1, 1):
        number(add(rows(per_rank)))
    start[0] = time.monotonic()
    return first_shape()


def extra() -> list[float]:
    warm()
    start[0] = time.monotonic()
    return first_extra()


def branch() -> list[float]:
    """A branch that all took before, and one does not take now."""
    for i in range(12):
        number(add(rows()))
        start[0] = time.monotonic()
        if i % 4 == 3 and not (odd and i == 11):
            number(largest(rows()))
    return []


def absent() -> list[float]:
    if odd:
        time.sleep(12)
        return []
    return [number(add(rows()))]


def early() -> list[float]:
    warm()
    for _ in range(1 if odd else 2):
        start[0] = time.monotonic()
        number(add(rows()))
        number(largest(rows()))
    return []


def skipped() -> list[float]:
    """One rank leaves out a bad row, and makes up for it: all make as many calls."""
    found = []
    for step in range(6 + odd):
        start[0] = time.monotonic()
        if odd and step == 3:
            continue
        found.append(number(add(rows() + step)))
    return found


def epochs() -> list[float]:
    """One rank has a batch less in each epoch, and trains for more epochs."""
    found = []
    for epoch in range(5 if odd else 4):
        for _ in range(4 if odd else 5):
            found.append(number(add(rows() + epoch)))
    return found


def meets() -> list[float]:
    """One rank computes a metric of its own, while the others meet."""
    return [number(add(rows()))] if odd else [world.barrier("save")]


def meets_in_loop() -> list[float]:
    """The others meet where one rank goes on with its loop, as foretold."""
    for i in range(7):
        if i == 6 and not odd:
            start[0] = time.monotonic()
            world.barrier("save")
        number(add(rows()))
        number(largest(rows()))
    return []


def healthy() -> list[float]:
    """Batches of two shapes, a rare call, programs not wrapped, or compiled before, pmap, callbacks, slow ranks."""
    found = []
    parallel = wrap(jax.pmap(lambda x: jax.lax.psum(x, "i"), axis_name="i"))
    mapped = wrap(jax.shard_map(lambda x: jax.lax.psum(x, "d"), mesh=mesh, in_specs=P("d"), out_specs=P()))
    told: list[Any] = []

    def tell(x: Any, count: int) -> Any:
        jax.debug.callback(told.append, x.sum())
        return x.sum() * count

    noisy = wrap(jax.jit(lambda x, key: (x + 0 * jax.random.uniform(key)).sum(), out_shardings=whole))
    telling = wrap(jax.jit(tell, static_argnums=1, out_shardings=whole))
    ahead_of_time = wrap(jax.jit(jnp.sum, out_shardings=whole).lower(rows()).compile())
    for i in range(200):
        if i % 60 == 30:
            found.append(number(ahead_of_time(rows())))
            found.append(number(telling(rows(), i)))
            found.append(number(noisy(rows(), jax.random.key(rank))))
            found.append(float(parallel(np.ones((jax.local_device_count(), 3)))[0, 0]))
            found.append(float(mapped(rows()).addressable_data(0)[0, 0]))
        found.append(number(add(rows(1 + (i % 10 == 9)))))
        if i % 7 == rank % 7:
            time.sleep(0.001)
        if i % 50 == 49:
            found.append(number(largest(rows())))
        if i == 20:
            found.append(float(jnp.mean(jax.device_put(np.ones(8, np.float32), whole)).addressable_data(0)))
            mine = jnp.ones(8)  # on the first device of each rank
            found.append(number(jax.jit(jnp.sum, out_shardings=whole)(mine)))
    return [sum(found)]


def ended() -> list[float]:
    """One rank's program ends early."""
    found = early()
    if odd:
        print("RESULT {}", flush=True)
        sys.exit()
    return found


def main() -> None:
    results = {}
    if not ours:
        faulthandler.dump_traceback_later(10, exit=True)
    for case in cases:
        start[0] = time.monotonic()
        try:
            results[case] = {"numbers": globals()[case]()}
        except allranks.world.base.AllranksError as error:
            results[case] = {"error": f"{type(error).__name__}: {error}", "ranks": error.ranks}
            if case == cases[-1]:
                raise
        finally:
            results.setdefault(case, {}).update(began=start[0], seconds=time.monotonic() - start[0])
            print(f"RESULT {json.dumps(results)}\n", end="", flush=True)  # in one piece


if how == "process":
    watch_process(timeout=patience)
with allranks.lockstep(timeout=patience) if how in ("", "unknown") else nullcontext():
    main()
