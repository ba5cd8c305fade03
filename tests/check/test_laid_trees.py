"""How the arrays of a tree lie, as a tree of shardings says: by key or by place."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

TEXT = """
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.distributed.initialize()
mesh = Mesh(np.array(jax.devices()), ("x",))
cut, whole = NamedSharding(mesh, P("x")), NamedSharding(mesh, P())


def init(key):
    return make(key)


def to_host(tree):
    return jax.tree.map(np.asarray, tree)


@jax.jit
def step(params, x):
    return jax.tree.map(lambda a: a - 0.1 * x, params), x


params = MADE
USED
"""
DICT = 'jax.jit(init, out_shardings={"w": cut, "b": whole})(0)'
ALL_CUT = 'jax.jit(init, out_shardings={"w": cut, "b": cut})(0)'
CASES = {
    "what is cut, by key": (DICT, 'np.asarray(params["w"])', 1),
    "what is on all, by key": (DICT, 'np.asarray(params["b"])', 0),
    "a key that is not there": (DICT, 'np.asarray(params["c"])', 0),
    "the whole tree": (ALL_CUT, "jax.device_get(params)", 1),
    "each of the tree": (ALL_CUT, "to_host(params)", 1),
    "each of a tree that is on all": (DICT.replace("cut", "whole"), "to_host(params)", 0),
    "a tree in a variable": (
        "tree(0)",
        'shardings = {"w": cut}\nparams = jax.jit(init, out_shardings=shardings)(0)\nto_host(params)',
        1,
    ),
    "dict of keywords": ("jax.jit(init, out_shardings=dict(w=cut))(0)", 'np.asarray(params["w"])', 1),
    "a comprehension": ("jax.jit(init, out_shardings={k: cut for k in 'ab'})(0)", 'np.asarray(params["a"])', 1),
    "a comprehension of wholes": ("jax.jit(init, out_shardings={k: whole for k in 'ab'})(0)", "to_host(params)", 0),
    "a tuple": ("jax.jit(init, out_shardings=(cut, whole))(0)", "np.asarray(params[0])", 1),
    "the other of a tuple": ("jax.jit(init, out_shardings=(cut, whole))(0)", "np.asarray(params[1])", 0),
    "a dictionary in a tuple": (
        'jax.jit(init, out_shardings=({"w": cut, "b": whole}, None))(0)',
        'np.asarray(params[0]["w"]), np.asarray(params[0]["b"]), np.asarray(params[1])',
        1,
    ),
    "a dictionary in a dictionary": (
        'jax.jit(init, out_shardings={"a": {"w": cut}, "b": None})(0)',
        'np.asarray(params["a"]["w"]), np.asarray(params["b"])',
        1,
    ),
    "after a step": (ALL_CUT, "params, x = step(params, 1)\nto_host(params)", 1),
    "of a step": (ALL_CUT, "params, x = step(params, 1)\nnp.asarray(x)", 0),
    "put where a tree says": ('jax.device_put(make(0), {"w": cut, "b": whole})', 'np.asarray(params["w"])', 1),
    "put on all": ('jax.device_put(make(0), {"w": cut, "b": whole})', 'np.asarray(params["b"])', 0),
}


@pytest.mark.parametrize("case", CASES)
def test_how_the_arrays_of_a_tree_lie(case: str) -> None:
    made, used, fetches = CASES[case]
    text = TEXT.replace("MADE", made).replace("USED", used)
    found = check({"train.py": text.encode()}, Settings(select=("AR609",))).findings
    assert [finding.code for finding in found] == ["AR609"] * fetches
