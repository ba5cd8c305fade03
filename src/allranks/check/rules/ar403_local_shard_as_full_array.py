"""AR403: one shard of an array is taken for the whole."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.program import Program
from allranks.check.rule import Example, LocalRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import RANK_KINDS, origins
from allranks.check.tree.syntax import function_of, tail_of, variables
from allranks.findings import Finding

_SINKS = frozenset(
    [
        *("save", "savez", "savez_compressed", "dump", "save_file", "save_pretrained", "save_checkpoint", "generate"),
        *("sample", "tree_serialise_leaves", "to_bytes", "msgpack_serialize", "write_bytes", "save_params"),
    ]
)
_WHOLE = re.compile(
    r"is_fully_replicated|unreplicate|replica_id|shard\.index|\.index\b|process_allgather|is_fully_address"
)
_FIRST = "the part of one device, used as the complete array"
_OWN = "these are this process' own shards"
_SAVING = re.compile(r"save|export|checkpoint|params_for_host|full|to_host|gather|unshard", re.IGNORECASE)


class LocalShardAsFullArray(LocalRule):
    """
    ## What it does
    Finds the part of an array on the first device of this process (`addressable_data(0)` or
    `addressable_shards[0].data`) that is saved, used to generate, or returned as the host's copy of the parameters.
    Also all shards of this process, concatenated (`concatenate([s.data for s in x.addressable_shards])`) and saved
    under a name without the rank.

    ## Why is this bad
    It is the complete array only if the array is replicated. For a sharded array it is a slice, with the right type and
    the wrong shape.

    ## What happens with N processes
    Rank 0 saves its slice under the name of the model. The rest is lost, which is noticed at the load.

    ## Known problems
    Arrays that are always replicated are reported, too: test `is_fully_replicated` to show it. If a mesh has one axis,
    no spec shards more than rows, and nothing mentions FSDP, the first shard is not reported.

    No fault of this kind has been seen in real code yet.

    ## Use instead
    `multihost_utils.process_allgather(tree, tiled=True)` on every rank, then the guard; or a sharded checkpoint.

    ## Fix safety
    There is no automatic fix: the gather must be called on all ranks.
    """

    code, name, severity, row = "AR403", "local-shard-as-full-array", "error", "checkpoint save"
    cluster = "What is saved is the slice of one device; the rest of the array is lost."
    advice = "Gather on every rank (process_allgather(..., tiled=True)), then write on rank 0; or save sharded."
    words = ("addressable_data", "addressable_shards")
    nodes = (ast.Call, ast.Subscript)
    bad = (
        Example(
            {
                "train.py": """\
import jax
import numpy as np

def save(params, path):
    host = jax.tree.map(lambda x: np.asarray(x.addressable_data(0)), params)
    if jax.process_index() == 0:
        np.savez(path, **host)

def params_for_host(params):
    return jax.tree.map(lambda x: x.addressable_shards[0].data, params)

def dump(table, folder):
    if jax.process_index() == 0:
        rows = np.concatenate([shard.data for shard in table.addressable_shards])
        np.save(f"{folder}/table.npy", rows)

mesh = jax.make_mesh((2, 4), ("data", "model"))
""",
            },
            at=(5, 10, 14),
        ),
        Example(
            {
                "train.py": """\
import pickle
import jax


def local(tree):
    return jax.tree.map(lambda x: x.addressable_data(0), tree)


def write(state, file):
    if jax.process_index() == 0:
        pickle.dump(local(state), file)


axes = ("dp", "tp")
mesh = jax.sharding.Mesh(jax.devices(), axes)
"""
            },
            at=(6,),
        ),
        # A leaf is cut along the axis of the rows, where it can be.
        Example(
            {
                "train.py": """\
import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P

mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))

def sharding_of(leaf):
    return NamedSharding(mesh, P("data") if leaf.shape[0] % mesh.size == 0 else P())

def save(params, path):
    host = jax.tree.map(lambda x: np.asarray(x.addressable_data(0)), params)
    if jax.process_index() == 0:
        np.savez(path, **host)
"""
            },
            at=(11,),
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
import jax
import numpy as np
from jax.experimental import multihost_utils

def save(params, path):
    host = multihost_utils.process_allgather(params, tiled=True)
    if jax.process_index() == 0:
        np.savez(path, **host)

def log(loss):
    print(float(loss.addressable_data(0)))

def save_replicated(params, path):
    assert all(x.is_fully_replicated for x in jax.tree.leaves(params))
    np.savez(path, **jax.tree.map(lambda x: x.addressable_data(0), params))

def save_own(array, path):
    rows = np.concatenate([np.asarray(s.data) for s in array.addressable_shards])
    np.save(f"{path}-{jax.process_index()}", rows)
    print(rows.mean())

mesh = jax.make_mesh((2, 4), ("data", "model"))

def save_shards(array, path):
    for shard in array.addressable_shards:
        np.save(f"{path}-{shard.device.id}", shard.data)
""",
            },
        ),
        # Rows are dealt along the one axis; all else is whole on each device.
        Example(
            {
                "train.py": """\
import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P

mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
rows, whole = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())

def save(params, path):
    host = jax.tree.map(lambda x: np.asarray(x.addressable_data(0)), params)
    if jax.process_index() == 0:
        np.savez(path, **host)
""",
            },
        ),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if isinstance(node, ast.Call) and _together(node) and _saved_by_all(node, file):
            yield self.local(
                file, node, f"{_OWN} of an array that is sharded over all processes, used as the complete array"
            )
        if not _first_shard(node):
            return
        functions = (ast.FunctionDef, ast.AsyncFunctionDef)
        scope = next((p for p in file.parents(node) if isinstance(p, functions)), None)
        if scope is None or _WHOLE.search(ast.unparse(scope)):
            return
        handed_on = _SAVING.search(scope.name) or scope.name in file.once("saved", file.tree, _saved_results)
        if _saved(node, file, scope) or (_returned(node, file) and handed_on):
            yield self.local(file, node, f"{ast.unparse(node)} is {_FIRST}")

    def stands(self, finding: Finding, program: Program) -> bool:
        return program.facts.cuts_state or not finding.message.endswith(_FIRST)


def _together(call: ast.Call) -> bool:
    """``np.concatenate([s.data for s in x.addressable_shards])``"""
    if tail_of(call) not in ("concatenate", "vstack", "concat", "hstack") or not call.args:
        return False
    made = call.args[0]
    loops = made.generators if isinstance(made, ast.ListComp | ast.GeneratorExp) else []
    return any(isinstance(at, ast.Attribute) and at.attr == "addressable_shards" for g in loops for at in walk(g.iter))


def _saved_by_all(call: ast.Call, file: File) -> bool:
    """What it makes is saved under a name that is not this process' own."""
    scope, above = function_of(call, file), next(file.parents(call), None)
    if scope is None or _WHOLE.search(ast.unparse(scope)):
        return False
    names = {ast.unparse(t) for t in above.targets} if isinstance(above, ast.Assign) else set()
    return any(
        isinstance(at, ast.Call)
        and _called(at) in _SINKS
        and (call in walk(at) or names & variables(at))
        and not any(origins(argument, file) & RANK_KINDS for argument in at.args[:1])
        for at in walk(scope)
    )


def _first_shard(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr == "addressable_data"
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute):
        return node.value.attr == "addressable_shards" and isinstance(node.slice, ast.Constant)
    return False


def _called(node: ast.AST) -> str:
    return tail_of(node) if isinstance(node, ast.Call) else ""


def _saved(node: ast.AST, file: File, scope: ast.AST) -> bool:
    for above in file.parents(node):
        if _called(above) in _SINKS:
            return True
        if isinstance(above, ast.Assign):
            names = {t.id for t in above.targets if isinstance(t, ast.Name)}
            return any(_called(part) in _SINKS and names & variables(part) for part in walk(scope))
        if above is scope:
            return False
    return False


def _saved_results(tree: ast.Module) -> frozenset[str]:
    """Return the names of the functions whose results are saved right away: ``dump(first_part(state), file)``."""
    sinks = (part for part in walk(tree) if isinstance(part, ast.Call) and _called(part) in _SINKS)
    return frozenset(_called(part) for sink in sinks for argument in sink.args for part in walk(argument)) - {""}


def _returned(node: ast.AST, file: File) -> bool:
    for above in file.parents(node):
        if isinstance(above, ast.stmt):
            return isinstance(above, ast.Return)
    return False
