"""Readers of data that give every process the same: they deal it out to workers alone, or divide the batch alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import MOST, RANK_KINDS, origins, values
from allranks.check.tree.syntax import is_constant, name_of, tail_of

SOURCES = ("load_dataset", "as_dataset", "TFRecordDataset", "list_files", "from_tensor_slices", "memmap", "open_source")
# Somebody in the file has thought about who reads what.
_SPLITS = re.compile(
    r"shard|split_by|even_splits|InputContext|input_context|ReadConfig|read_config|subsplit|Sampler|NamedSharding"
)
_WORKER = "torch.utils.data.get_worker_info"
# Parameters that may bring a part that somebody else made for this process.
_PART = re.compile(r"shard|replica|process|node|part|local", re.IGNORECASE)


def split_by_worker_alone(reader: ast.ClassDef, file: File) -> ast.AST | None:
    """Return where a class takes the part of a worker, if nothing in it depends on the rank, but that it keeps one."""
    nodes = walk(reader)
    if any(isinstance(at, ast.arg) and _PART.search(at.arg) for at in nodes):
        return None
    taken = next((node for node, bounds in _parts(nodes, file) if any(_by_worker(b, file) for b in bounds)), None)
    return None if taken is None or any(_asks_rank(node, file) for node in nodes) else taken


def workers_in(reader: ast.ClassDef, file: File) -> list[ast.AST]:
    """Return where a class asks for the worker that it is in."""
    return [at for at in walk(reader) if isinstance(at, ast.Call) and name_of(at, file) == _WORKER]


def divides_alone(file: File) -> bool:
    """Return whether a file divides something, as its batch, by the number of processes, and nothing in it depends on
    the rank, but guards, nor refuses to be run as several processes."""
    return file.once("divides alone", file.tree, lambda _: _divides_alone(file))


def _divides_alone(file: File) -> bool:
    divides = any(
        isinstance(at, ast.BinOp) and isinstance(at.op, ast.FloorDiv) and origins(at.right, file) == {"size"}
        for at in file.nodes
    )
    if not divides or _SPLITS.search(file.text):
        return False
    return not any(_asks_rank(at, file) or _refuses(at, file) for at in file.nodes)


def _refuses(node: ast.AST, file: File) -> bool:
    """``if jax.process_count() > 1: raise NotImplementedError``"""
    if not isinstance(node, ast.If) or not isinstance(node.body[-1], ast.Raise):
        return False
    test = node.test
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Gt):
        return False
    return is_constant(test.comparators[0], 1) and origins(test.left, file) == {"size"}


def _parts(nodes: Iterable[ast.AST], file: File) -> Iterator[tuple[ast.AST, list[ast.expr]]]:
    """Yield where a part of something is taken, and what says which."""
    for node in nodes:
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            yield node, [bound for bound in (node.slice.lower, node.slice.step) if bound is not None]
        elif isinstance(node, ast.Call) and name_of(node, file) == "itertools.islice":
            yield node, node.args[1:]
        elif isinstance(node, ast.Compare) and isinstance(node.left, ast.BinOp) and isinstance(node.left.op, ast.Mod):
            yield node, [node.left.right, *node.comparators]


def _by_worker(bound: ast.expr, file: File) -> bool:
    waiting, seen = [bound], {id(bound)}
    while waiting:
        for node in walk(waiting.pop()):
            if isinstance(node, ast.Call) and name_of(node, file) == _WORKER:
                return True
            stored = values(node, file) if isinstance(node, ast.Name | ast.Attribute) else []
            new = [value for value in stored if id(value) not in seen][: max(MOST - len(seen), 0)]
            seen.update(map(id, new))
            waiting += new
    return False


def _asks_rank(node: ast.AST, file: File) -> bool:
    """Whether something depends on the rank here. ``self.rank = rank`` keeps it for later."""
    may_ask = isinstance(node, ast.Name | ast.Attribute | ast.Call) and _is_used(node, file)
    return may_ask and not RANK_KINDS.isdisjoint(origins(node, file))


def _is_used(node: ast.AST, file: File) -> bool:
    """Whether something hangs on what an expression says here, more than what it is kept in."""
    if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
        return False
    above = next(file.parents(node), None)
    if isinstance(above, ast.Call) and above.func is node:
        return False  # the call is looked at
    if isinstance(above, ast.Compare) or (isinstance(above, ast.UnaryOp) and isinstance(above.op, ast.Not)):
        return isinstance(above, ast.Compare) and isinstance(above.left, ast.BinOp)
    statement = next((p for p in file.parents(node) if isinstance(p, ast.stmt)), None)
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and "seed" in tail_of(statement.value):
        return False  # it reads the same in another order
    return not (isinstance(statement, ast.Assign) and all(map(_is_kept, statement.targets)))


def _is_kept(target: ast.expr) -> bool:
    parts = target.elts if isinstance(target, ast.Tuple) else [target]
    return all(isinstance(part, ast.Attribute) for part in parts)
