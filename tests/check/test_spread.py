"""Arrays of JAX that span all processes, followed to where some processes alone compute with them."""

from __future__ import annotations

import textwrap

import pytest

from allranks.check.engine import Settings, check

HEAD = """\
import functools
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import mesh_utils, multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.distributed.initialize()
mesh = Mesh(mesh_utils.create_device_mesh((jax.device_count(),)), ("data",))
cut, whole = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())
x = jax.make_array_from_process_local_data(cut, np.ones((4, 4)))
first = jax.process_index() == 0
"""


def _found(text: str, *codes: str, **more: str) -> list[tuple[str, str]]:
    """Return (code, the line that is marked) for a script behind the head."""
    files = {"train.py": HEAD + textwrap.dedent(text), **{f"{name}.py": HEAD + body for name, body in more.items()}}
    found = check({path: body.encode() for path, body in files.items()}, Settings(select=codes)).findings
    return [(f.code, files[f.place.path].splitlines()[f.place.line - 1].strip()) for f in found]


COMPUTED = [
    "float(jnp.mean(x))",
    "float(x.mean())",
    "x[:4]",
    "x[0]",
    "x[0, 1:]",
    "x * 2",
    "1 - x",
    "x > 3",
    "x.T",
    "jnp.linalg.norm(x)",
    "jax.nn.softmax(x)",
    "jax.tree.map(jnp.mean, {'a': x})",
    "jax.tree.map(lambda leaf: leaf.sum(), {'a': x, 'b': x})",
    "[x, 1][0].sum()",
    "dict(a=x, b=1)['a'].sum()",
    "{'a': x, 'b': 1}['a'].sum()",
]
KNOWN = [  # what this process can tell, has, or was given
    "x.shape, x.dtype, x.ndim, x.sharding, x.is_fully_replicated",
    "jnp.shape(x), x.shape[0] * 2, x is None",
    "np.asarray(x.addressable_data(0)).mean()",
    "[np.asarray(part.data).mean() for part in x.addressable_shards]",
    "float(x.addressable_shards[0].data.mean())",
    "x",
    "x.block_until_ready()",
    "{'a': x, 'b': 1}['b'] + 1",
]


@pytest.mark.parametrize("computation", COMPUTED)
def test_one_operation_on_an_array_of_all_processes_is_met_by_all(computation: str) -> None:
    """What one process alone computes of it, the others never start; what all compute is right."""
    assert _found(f"if first:\n    print({computation})\n", "AR204") == [("AR204", f"print({computation})")]
    assert _found(f"value = {computation}\nif first:\n    print(value)\n", "AR204") == []


@pytest.mark.parametrize("known", KNOWN)
def test_what_a_process_can_tell_alone_is_no_computation(known: str) -> None:
    """Shapes, the parts that lie here, and whatever else is stored beside an array."""
    assert _found(f"if first:\n    print({known})\n", "AR204") == []


MADE = {  # how y is made -> whether it is in parts
    "y = jax.device_put(np.ones(8), cut)": True,
    "y = jax.device_put(np.ones(8), whole)": False,
    "y = jax.make_array_from_callback((8,), cut, lambda at: np.ones(8)[at])": True,
    "y = jax.make_array_from_callback((8,), layout(), lambda at: np.ones(8)[at])": False,
    "y = multihost_utils.host_local_array_to_global_array(np.ones(8), mesh, P('data'))": True,
    "y = multihost_utils.global_array_to_host_local_array(x, mesh, P('data'))": False,
    "y = multihost_utils.process_allgather(x, tiled=True)": False,
    "y = jax.jit(lambda a: a, out_shardings=cut)(x)": True,
    "y = jax.jit(lambda a: a, out_shardings=whole)(x)": False,
    "y, z = jax.jit(model, out_shardings=(cut, whole))(x)": True,
    "z, y = jax.jit(model, out_shardings=(cut, whole))(x)": False,
    "y = jax.jit(lambda a: a * 2)(x)": True,
    "y = jax.jit(lambda a: (a * 2).mean())(x)": False,
    "y = jax.jit(lambda a: model(a))(x)": False,
    "y = jax.jit(lambda a, w: a @ w)(x, np.ones(4))": True,
    "y = jax.jit(lambda a, w: w @ a)(x, np.ones(4))": False,
    "y = jax.jit(lambda a: {'rows': a, 'loss': a.mean()})(x)['rows']": True,
    "y = jax.jit(lambda a: {'rows': a, 'loss': a.mean()})(x)['loss']": False,
    "z, y = x": False,
    "y = jax.jit(lambda a: a * 2).lower(x).compile()(x)": True,
    "y = jax.jit(lambda a: jax.lax.with_sharding_constraint(model(a), cut))(x)": True,
    "y = jax.jit(lambda a: jax.lax.with_sharding_constraint(model(a), whole))(x)": False,
    "y = jnp.zeros(8, device=cut)": True,
    "y = jax.device_put(np.ones(8), device=P('data'))": True,
    "y = [jax.device_put(rows, cut) for rows in loader][0]": True,
    "y = jax.device_put(np.ones(8), NamedSharding(Mesh(np.array(jax.local_devices()), ('data',)), P('data')))": False,
    "y = x\nif jax.process_count() == 1:\n    y = np.ones(4)": True,
    "y = jax.device_put(np.ones(8), cut if split else whole)": False,
    "y = jax.device_put(np.ones(8), cut)\nif gather:\n    y = jax.device_put(y, whole)": False,
}


@pytest.mark.parametrize("made", MADE)
def test_how_an_array_is_made_says_how_it_lies(made: str) -> None:
    """Only what is certainly in parts counts: not what is replicated, gathered, or laid out nobody knows how."""
    found = _found(f"{made}\nif first:\n    print(y.mean())\n", "AR204")
    assert found == ([("AR204", "print(y.mean())")] if MADE[made] else [])


FOLLOWED = {
    "an attribute": """
        class Trainer:
            def __init__(self):
                self.x = x
            def log(self):
                if first:
                    print(self.x.mean())
        Trainer().log()
        """,
    "a parameter of a function that asks who it is": """
        def log(step, value):
            if first:
                print(step, jnp.mean(value))
        log(1, x)
        """,
    "a parameter of one that does not": """
        def norm(value):
            return jnp.mean(value)
        if first:
            norm(x)
        """,
    "a return": """
        def put(rows):
            return jax.device_put(rows, cut)
        if first:
            print(put(np.ones(8)).mean())
        """,
    "a loop, with another step behind it": """
        step = jax.jit(lambda a: (a * 0.9, a.sum()))
        for i in range(3):
            x, loss = step(x)
            if first and i % 10 == 0:
                print(loss, jnp.mean(x))
            x, loss = step(x)
        """,
    "a generator": """
        def batches(loader):
            for rows in loader:
                yield jax.make_array_from_process_local_data(cut, rows)
        for i, batch in enumerate(batches([1])):
            if first:
                print(batch.mean())
        """,
    "a helper that is told how": """
        def put(rows, how):
            return jax.device_put(rows, how)
        y = put(np.ones(8), cut)
        if first:
            print(y.mean())
        """,
    "leaves of a tree": """
        params = jax.device_put({}, cut)
        if first:
            print(sum(jnp.sum(leaf) for leaf in jax.tree.leaves(params)))
        """,
    "a comprehension in a helper": """
        params = jax.device_put({}, cut)
        def norms(tree):
            return {key: jnp.linalg.norm(leaf) for key, leaf in tree.items()}
        if first:
            print(norms(params))
        """,
    "a state": """
        from flax.training import train_state
        class State(train_state.TrainState):
            rng: int
        state = State.create(params=jax.device_put({}, cut), rng=1)
        state = state.replace(rng=2)
        if first:
            print(jax.tree.map(jnp.mean, state.params), state.rng + 1)
        """,
    "a model that is applied": """
        def sample(model, params):
            if first:
                print(model.apply({"params": params}, np.ones(4)))
        sample(None, jax.device_put({}, cut))
        """,
    "an early return": """
        def log(value):
            if not first:
                return
            print(value.mean())
        for i in range(3):
            log(x)
        """,
    "a dictionary that is filled": """
        batch = {}
        batch["rows"], batch["at"] = x, 3
        if first:
            print(batch["rows"].mean(), batch["at"] + 1)
        """,
}


@pytest.mark.parametrize("way", FOLLOWED)
def test_an_array_is_followed_to_where_one_process_computes(way: str) -> None:
    """Through attributes, parameters, returns, loops and dictionaries."""
    (found,) = _found(FOLLOWED[way], "AR204")
    assert found[0] == "AR204"


RIGHT = {
    "what a step gives as a number": """
        step = jax.jit(lambda a: (a * 0.9, a.mean()))
        for i in range(3):
            x, loss = step(x)
            if first:
                print(float(loss), loss.item(), loss * 2)
        """,
    "computed by all, printed by one": """
        norm = jnp.linalg.norm(x)
        if first:
            print(float(norm))
        """,
    "each side computes": """
        if first:
            print(x.mean())
        else:
            x.mean()
        """,
    "a part of a state": """
        from flax.training.train_state import TrainState
        state = TrainState.create(params=jax.device_put({}, cut), rng=1)
        whole_one = state.replace(params=jax.device_put({}, whole))
        if first:
            print(state.rng + 1, jax.tree.map(jnp.mean, whole_one.params))
        """,
    "one process": """
        if jax.process_count() == 1:
            print(float(x.mean()))
        """,
    "a helper that looks where an array lies": """
        def host(value):
            if value.is_fully_addressable or value.is_fully_replicated:
                return np.asarray(value)
            return multihost_utils.process_allgather(value, tiled=True)
        print(host(x))
        """,
}


@pytest.mark.parametrize("case", RIGHT)
def test_right_programs_are_left_alone(case: str) -> None:
    """Replicated results are read by anybody; what all compute may be printed by one."""
    assert _found(RIGHT[case], "AR204") == []
