"""AR403: one shard of an array is taken for the whole."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.program import Program
from allranks.check.rule import LocalRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.syntax import calls_of, function_of, tail_of, variables
from allranks.check.tree.words import parts
from allranks.findings import Finding

_SINKS = frozenset(
    [
        *("save", "savez", "savez_compressed", "dump", "save_file", "save_pretrained", "save_checkpoint", "generate"),
        *("sample", "tree_serialise_leaves", "to_bytes", "msgpack_serialize", "write_bytes", "save_params"),
    ]
)
# A function that says one of these knows that an array may be sharded.
_WHOLE = ("is_fully_replicated", "unreplicate", "replica_id", ".index", "process_allgather", "is_fully_address")
# Axes and settings that shard a state.
_CUTS = ("fsdp", "FSDP", "'model'", '"model"', '"tensor"', "'tensor'", '"mp"', "'mp'", '"tp"', "'tp'", "ZeRO", "zero_")
_SAVING = frozenset({"save", "export", "checkpoint", "host", "full", "gather", "unshard"})


class LocalShardAsFullArray(LocalRule):
    """
    ## What it does
    Finds the part of an array on the first device of this process (`addressable_data(0)` or
    `addressable_shards[0].data`) that is saved, used to generate, or returned as the host's copy of the parameters.

    ## Why is this bad
    It is the complete array only if the array is replicated. For a sharded array it is a slice, with the right type and
    the wrong shape.

    ## What happens with N processes
    Rank 0 saves its slice under the name of the model. The rest is lost, which is noticed at the load.

    ## Known problems
    Arrays that are always replicated are reported, too: test `is_fully_replicated` to show it.

    ## Use instead
    `multihost_utils.process_allgather(tree, tiled=True)` on every rank, then the guard; or a sharded checkpoint.
    """

    code, name, severity, row = "AR403", "local-shard-as-full-array", "error", "checkpoint save"
    cluster = "What is saved is the slice of one device; the rest of the array is lost."
    advice = "Gather on every rank (process_allgather(..., tiled=True)), then write on rank 0; or save sharded."
    words = ("addressable_data", "addressable_shards")
    nodes = (ast.Call, ast.Subscript)
    bad = (
        """\
import numpy as np


def save(params, path):
    first = params.addressable_data(0)  # <-- found
    np.save(path, first)
""",
    )
    good = (
        """\
import numpy as np
from jax.experimental import multihost_utils


def save(params, path):
    if params.is_fully_replicated:
        np.save(path, params.addressable_data(0))
    else:
        np.save(path, multihost_utils.process_allgather(params, tiled=True))


def shape(params):
    return params.addressable_shards[0].data.shape
""",
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        scope = function_of(node, file)
        if scope is None or not _is_first_shard(node):
            return
        text = file.code_in(scope)
        if any(word in text for word in _WHOLE):
            return
        if _is_saved(node, file, scope) or (_is_returned(node, file) and _is_saver(scope.name, file)):
            yield self.local(file, node, f"{ast.unparse(node)} is the part of one device, used as the complete array")

    def confirm(self, finding: Finding, program: Program) -> bool:
        """Whether a state may be sharded: with a mesh of one axis, along which rows are dealt, each device has it."""
        path, facts = finding.place.path, program.facts
        return not facts.says(path, "Mesh(", "make_mesh(") or facts.says(path, *_CUTS)


def _is_first_shard(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr == "addressable_data"
    shards = isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.value
    return isinstance(shards, ast.Attribute) and shards.attr == "addressable_shards"


def _is_saved(node: ast.AST, file: File, scope: ast.AST) -> bool:
    """Whether it, or the name that it is stored under, is given to what saves or generates."""
    for above in file.parents(node):
        if isinstance(above, ast.Call) and tail_of(above) in _SINKS:
            return True
        if isinstance(above, ast.Assign):
            names = {at.id for at in above.targets if isinstance(at, ast.Name)}
            sinks = (at for at in walk(scope) if isinstance(at, ast.Call) and tail_of(at) in _SINKS)
            return any(names & variables(at) for at in sinks)
    return False


def _is_returned(node: ast.AST, file: File) -> bool:
    above = next((at for at in file.parents(node) if isinstance(at, ast.stmt)), None)
    return isinstance(above, ast.Return)


def _is_saver(name: str, file: File) -> bool:
    """Whether a function is called like what saves, or what it returns is saved right away."""
    calls = calls_of(file).get(name, ())
    handed = (above for call in calls for above in file.parents(call) if isinstance(above, ast.Call))
    return not parts(name).isdisjoint(_SAVING) or any(tail_of(above) in _SINKS for above in handed)
