"""Computations of JAX on arrays that lie on all processes: meetings that no name gives away."""

from __future__ import annotations

import textwrap

import pytest

from allranks.check.engine import Settings, check

HEAD = """\
import functools
import jax
import numpy as np
import orbax.checkpoint
from dataclasses import dataclass
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.distributed.initialize()
"""
_UNSHARD = """
class Trainer:
    def __init__(self):
        self.mesh = Mesh(np.array(jax.devices()), ('dp',))
        self._unshard = jax.jit(lambda tree: tree, out_shardings=NamedSharding(self.mesh, P()))

    def _params_for_host(self):
        return jax.tree.map(np.asarray, self._unshard(self.params))

    def save(self, step):
        {}

Trainer().save(1)
"""
SEED_FIX = "if jax.process_index() != 0:\n            return\n        write(self._params_for_host(), step)"
RIGHT_FIX = "params = self._params_for_host()\n        if jax.process_index() == 0:\n            write(params, step)"
SPREAD = """
@jax.jit
def loss(x):
    return x.mean()

def main(rows, mesh):
    x = jax.make_array_from_process_local_data(NamedSharding(mesh, P('data')), rows)
    {}

main(1, 2)
"""
ARRAYS = {
    "the first seed's fix: a return above a gather by jit": (_UNSHARD.format(SEED_FIX), ["AR204"]),
    "the gather hoisted": (_UNSHARD.format(RIGHT_FIX), []),
    "jit of an array that lies on all": (SPREAD.format("if jax.process_index() == 0:\n        loss(x)"), ["AR204"]),
    "jit of what lies here": (
        SPREAD.format("if jax.process_index() == 0:\n        loss(np.ones(3)), loss(x.addressable_data(0))"),
        [],
    ),
    "a decorator with shardings": (
        """
        @functools.partial(jax.jit, out_shardings=None)
        def sample(p):
            return p
        if jax.process_index() == 0:
            sample(1)
        """,
        ["AR204"],
    ),
    "a state that a step made": (
        """
        def main(mesh, state):
            state = jax.device_put(state, NamedSharding(mesh, P('data')))
            step, score = jax.jit(lambda s: (s, 1)), jax.jit(lambda p: p)
            for _ in range(3):
                state, metrics = step(state)
                if jax.process_index() == 0:
                    score(state.params)
        """,
        ["AR204"],
    ),
    "a controller, answered by its workers": (
        _UNSHARD.format(
            "if jax.process_index() == 0:\n            self.work()\n        else:\n"
            "            while True:\n                self._unshard(1)\n\n    def work(self):\n        self._unshard(2)"
        ),
        [],
    ),
    "a manager that a dataclass makes": (
        """
        @dataclass
        class Save:
            folder: str
            def __post_init__(self):
                self.manager = orbax.checkpoint.CheckpointManager(self.folder)
            def __call__(self, state):
                if jax.process_index() == 0:
                    self.manager.save(1, state)
        Save('x')(1)
        """,
        ["AR201"],
    ),
}


@pytest.mark.parametrize("case", ARRAYS)
def test_computations_on_arrays_of_all_processes_are_meetings(case: str) -> None:
    """JAX has no call that looks like a collective: what a function is compiled for, or given, makes it one."""
    text, expected = ARRAYS[case]
    source = (HEAD + textwrap.dedent(text)).encode()
    found = check({"train.py": source}, Settings(select=("AR201", "AR202", "AR203", "AR204"))).findings
    assert [finding.code for finding in found] == expected
