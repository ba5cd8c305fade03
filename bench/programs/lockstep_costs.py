"""What lockstep costs a rank. argv: jax or torch. A call's time is its thread's own, in the best of many rounds."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from told import tell

import allranks
from allranks.gate.lockstep import api
from allranks.gate.lockstep.calls import make_call as call_of

ROUNDS, QUESTIONS, LAYERS = 15, 200, 24
framework = sys.argv[1]
world = allranks.init(backend=framework)
sequence = api.monitor_of(world).call_sequence(range(world.size))
found: dict[str, float] = {}


def best(*calls: Callable[[], object], times: int = 500) -> list[float]:
    """The times of calls, which take turns."""
    rounds: list[list[float]] = [[] for _ in calls]
    for _ in range(ROUNDS):
        for call, took in zip(calls, rounds, strict=True):
            begin = time.thread_time()
            for _ in range(times):
                call()
            took.append((time.thread_time() - begin) / times)
    return [min(took) for took in rounds]


def questions() -> float:
    """The time of a question that all ranks ask at once: the median of many."""
    took = []
    for i in range(QUESTIONS):
        begin = time.perf_counter()
        sequence.agree_on_call(call_of(f"question {i}"))
        took.append(time.perf_counter() - begin)
    return statistics.median(took)


def of_jax() -> None:
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    split = NamedSharding(Mesh(jax.devices(), "d"), PartitionSpec("d"))

    def rows(n: int = 1) -> Any:
        return jax.make_array_from_process_local_data(split, np.ones((n, 4), np.float32))

    small = jax.device_put(np.ones(2, np.float32), jax.local_devices()[0])
    x, other, tree = rows(), rows(2), [rows() for _ in range(300)]
    local, one = jax.jit(lambda x: x + 1), jax.jit(lambda x: x + 1)
    many = jax.jit(lambda tree, x: (jax.tree.map(lambda leaf: leaf + 1, tree), x + 1))
    local(small), one(x), many(tree, x)
    (found["a local call, before any function is wrapped"],) = best(lambda: local(small))
    one_stepped, many_stepped = allranks.lockstep(one), allranks.lockstep(many)
    for _ in range(5):
        one_stepped(x), many_stepped(tree, x)
    names = "a local call, afterwards", "a call across processes", "the same in lockstep"
    found.update(zip(names, best(lambda: local(small), lambda: one(x), lambda: one_stepped(x)), strict=True))
    names = "a call with 301 arrays", "the same, in lockstep"
    found.update(zip(names, best(lambda: many(tree, x), lambda: many_stepped(tree, x), times=50), strict=True))
    for batch in (other, x) * 5:
        many_stepped(tree, batch)
    (found["the same, of two shapes"],) = best(lambda: many_stepped(tree, x), times=50)
    first_run(jax, rows)


def first_run(jax: Any, rows: Callable[[], Any]) -> None:
    """A training step of 24 layers: its compilation, and reading and digesting what came of it."""
    from allranks.gate.lockstep.hlo import collectives_of_module
    from allranks.world.guards import jax as inside

    def loss(layers: Any, x: Any) -> Any:
        for layer in layers:
            x = jax.numpy.tanh(x @ layer.T @ layer)
        return x.mean()

    step = jax.jit(lambda layers, x: jax.tree.map(lambda w, g: w - g, layers, jax.grad(loss)(layers, x)))
    layers, x = [rows() for _ in range(LAYERS)], rows()
    begin = time.perf_counter()
    compiled = step.lower(layers, x).compile()
    found["compilation of a step of 24 layers"] = time.perf_counter() - begin
    program = compiled._executable.unsafe_call
    begin = time.perf_counter()
    text = inside.text_of(program)
    call_of("step", lines=collectives_of_module(text), hidden_key=inside.form_of(program, text))
    found["reading it for its first run"] = time.perf_counter() - begin


def of_torch() -> None:
    import torch
    import torch.distributed as dist

    from allranks.gate.lockstep import torch as edge
    from allranks.gate.lockstep.signatures.torch import METHODS

    class Done:
        def wait(self) -> None:
            """What a collective of no length returns."""

    def nothing(*_: object) -> Done:
        return Done()

    x, original = torch.ones(17), dist.ProcessGroup.allreduce

    def in_place(method: Callable[..., Any]) -> float:
        """The time of an all_reduce in which this takes the place of the collective itself."""
        dist.ProcessGroup.allreduce = method
        for _ in range(5):
            dist.all_reduce(x)
        (took,) = best(lambda: dist.all_reduce(x))
        dist.ProcessGroup.allreduce = original
        return took

    bare = in_place(nothing)
    watched = edge._comparing_method(nothing, METHODS["allreduce"], edge._install_kernels())
    found["in an all_reduce, outside of a block"] = max(0.0, in_place(watched) - bare)
    (found["a + a, outside of a block"],) = best(lambda: x + x)
    with allranks.lockstep():
        found["in an all_reduce, in a block"] = in_place(watched) - bare
        (found["a + a, in a block"],) = best(lambda: x + x)


(of_jax if framework == "jax" else of_torch)()
found["queries before, in total"] = float(sequence.exchange_count)
world.barrier()
found["a query that all ranks make"] = questions()
tell(**found)
