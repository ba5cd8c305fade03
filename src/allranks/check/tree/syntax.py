"""What local rules ask about a syntax tree: documented names of calls, rank guards, evidence of several processes."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from allranks.check.knowledge.tables import load
from allranks.check.sources.nodes import children, walk
from allranks.check.sources.source import File

Function = ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
# Names that tell processes apart, as people write them, alone or as a part of others.
_RANKS = (
    *("rank", "ranks", "rankzero", "process_index", "process_id", "host_id", "proc_id", "procid", "is_main"),
    "main_process",
    *("is_master", "master_process", "master_only", "is_global_zero", "chief", "is_world_process_zero", "is_primary"),
    *("is_rank0", "is_global_main", "should_save", "is_logging_process"),
)
# Words that a program of one process has no use for. What a file of it says is evidence enough for a rule on one file.
EVIDENCE = (
    *("torch.distributed", "DistributedDataParallel", "init_process_group", "LOCAL_RANK", "jax.distributed"),
    *(
        *("process_index", "process_count", "multihost_utils", "accelerate", "deepspeed", "DistributedSampler"),
        "SLURM_PROCID",
    ),
    *("world_size", "global_rank", "is_main_process", "horovod", "mpi4py", "fully_shard", "FullyShardedDataParallel"),
)


def name_of(node: ast.AST, file: File) -> str:
    """Return the documented dotted name that ``node`` (or, for a call, its function) stands for, or ''."""
    found = file.qualified(node.func if isinstance(node, ast.Call) else node)
    return load().documented(found) if found else ""


def tail_of(node: ast.AST) -> str:
    """Return the last part of a name or attribute (of the function, for a call), or ''."""
    at = node.func if isinstance(node, ast.Call) else node
    if isinstance(at, ast.Attribute):
        return at.attr
    return at.id if isinstance(at, ast.Name) else ""


def calls_of(file: File) -> dict[str, list[ast.Call]]:
    """Return the calls of a file, by the last part of what they call: as it is written, and as it is documented."""
    return file.once("calls", file.tree, lambda _: _calls_of(file))


def _calls_of(file: File) -> dict[str, list[ast.Call]]:
    found: dict[str, list[ast.Call]] = {}
    for node in file.kinds.get(ast.Call, ()):
        assert isinstance(node, ast.Call)
        written = tail_of(node)
        found.setdefault(written, []).append(node)
        if isinstance(node.func, ast.Name) or written in load().renamed:
            meant = name_of(node, file).rpartition(".")[2]
            if meant != written:
                found.setdefault(meant, []).append(node)
    return found


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """Return what is given for the keyword ``name``, None if it is not."""
    return next((k.value for k in call.keywords if k.arg == name), None)


def given(call: ast.Call, position: int, name: str) -> ast.expr | None:
    """Return the argument at ``position`` or under ``name``; None if neither is given, or a star might hold it."""
    if (value := keyword(call, name)) is not None:
        return value
    if len(call.args) > position and not any(isinstance(a, ast.Starred) for a in call.args[: position + 1]):
        return call.args[position]
    return None


def arguments(call: ast.Call) -> list[ast.expr]:
    """Return all that a call is given, by position and by name."""
    return [*call.args, *(k.value for k in call.keywords)]


def has_stars(call: ast.Call) -> bool:
    """Say whether arguments are passed on that do not stand here (``*args``, ``**options``)."""
    return any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords)


def is_constant(node: ast.AST | None, value: object) -> bool:
    """Say whether ``node`` is this constant (True is not 1)."""
    return isinstance(node, ast.Constant) and node.value is value


def blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield the blocks of a statement, but for those of handlers and cases."""
    yield from (b for name in ("body", "orelse", "finalbody") if isinstance(b := getattr(node, name, None), list))


def variables(node: ast.AST) -> set[str]:
    """Return the names of the variables in ``node``."""
    return {at.id for at in walk(node) if isinstance(at, ast.Name)}


def places_in(node: ast.AST) -> frozenset[str]:
    """Return the variables and attributes in ``node`` as they are written: ``self``, ``self.model``."""
    return frozenset(ast.unparse(at) for at in walk(node) if isinstance(at, ast.Name | ast.Attribute))


def words_of(node: ast.AST) -> Iterator[str]:
    """Yield every name, attribute and string constant in ``node``."""
    for at in walk(node):
        if isinstance(at, ast.Name):
            yield at.id
        elif isinstance(at, ast.Attribute):
            yield at.attr
        elif isinstance(at, ast.Constant) and isinstance(at.value, str):
            yield at.value


def asks_rank(test: ast.AST) -> bool:
    """Say whether a condition depends on the rank, by the names in it; ``rank is None``, ``rank == -1`` and
    ``rank >= 0`` do not."""
    said: bool | None = test.__dict__.get("asks_rank")
    if said is None:
        said = test.__dict__["asks_rank"] = _asks_rank(test)
    return said


def _asks_rank(test: ast.AST) -> bool:
    if isinstance(test, ast.BoolOp):
        return any(asks_rank(value) for value in test.values)
    if isinstance(test, ast.UnaryOp):
        return asks_rank(test.operand)
    if isinstance(test, ast.Compare) and (any(map(_is_absent, test.comparators)) or _is_of_all(test)):
        return False
    return any(map(_names_rank, words_of(test)))


@lru_cache(50_000)
def _names_rank(name: str) -> bool:
    return any(f"_{word}_" in f"_{name.lower()}_" for word in _RANKS)


def _is_of_all(test: ast.Compare) -> bool:
    """``rank >= 0``: there are several processes, and this is one."""
    return isinstance(test.ops[0], ast.GtE | ast.Lt) and is_constant(test.comparators[0], 0)


def _is_absent(node: ast.AST) -> bool:
    """None, or -1: not "which process?" but "are there several?"."""
    minus = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    return minus or is_constant(node, None)


def inside(node: ast.AST, file: File) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Yield (parent, child) from ``node`` up to the end of its function."""
    child = node
    for parent in file.parents(node):
        if isinstance(child, _SCOPES):
            return
        yield parent, child
        child = parent


def rank_guard(node: ast.AST, file: File) -> ast.expr | None:
    """Return the condition on the rank under which ``node`` runs, in its own function; None if there is none."""
    for parent, child in inside(node, file):
        if isinstance(parent, ast.If | ast.IfExp) and child is not parent.test and asks_rank(parent.test):
            return parent.test
    function = function_of(node, file)
    if function is None:
        return None
    for statement in function.body:
        if statement.lineno >= getattr(node, "lineno", 0):
            break
        if isinstance(statement, ast.If) and asks_rank(statement.test) and leaves(statement.body):
            return statement.test
    return next((d for d in function.decorator_list if asks_rank(d)), None)


def function_of(node: ast.AST, file: File) -> Function | None:
    """Return the function that ``node`` stands in, None at the top level of a module or class."""
    return next((p for p in file.parents(node) if isinstance(p, _FUNCTIONS)), None)


def class_of(node: ast.AST, file: File) -> ast.ClassDef | None:
    """Return the class that ``node`` stands in."""
    return next((p for p in file.parents(node) if isinstance(p, ast.ClassDef)), None)


def bases_of(node: ast.ClassDef, file: File) -> list[str]:
    """Return the documented names of the classes that a class inherits from."""
    return [name_of(base, file) for base in node.bases]


def leaves(body: Iterable[ast.stmt]) -> bool:
    """Say whether a block ends by leaving (return, raise, continue, break, or an exit of the process)."""
    *_, last = body
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        return tail_of(last.value) in ("exit", "_exit", "abort", "quit")
    return isinstance(last, ast.Return | ast.Raise | ast.Continue | ast.Break)


def fails(body: Iterable[ast.stmt]) -> bool:
    """Say whether a block ends with an error, which ends the job: ``raise ...``, ``sys.exit(1)``."""
    *_, last = body
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call) and leaves([last]):
        given = last.value.args
        return tail_of(last.value) == "abort" or (bool(given) and not is_constant(given[0], 0))
    return isinstance(last, ast.Raise)


def own(function: ast.AST) -> Sequence[ast.AST]:
    """Return the nodes of a function or module in order, not those of functions and classes defined in it; kept."""
    kept: list[ast.AST] | None = function.__dict__.get("own")
    if kept is None:
        kept = function.__dict__["own"] = []
        todo = list(children(function)[::-1])
        while todo:
            node = todo.pop()
            kept.append(node)
            if node.__class__ not in _SCOPES and (below := children(node)):
                todo += below[::-1]
    return kept


def nodes_in(body: Iterable[ast.AST]) -> list[ast.AST]:
    """Return the statements of a block and the nodes in them in order, those of nested functions left out."""
    return [at for part in body for at in (part, *own(part))]


def raises(handler: ast.ExceptHandler) -> bool:
    """Say whether an exception handler lets nobody go on: it raises, or ends the process."""
    for node in own(handler):
        if isinstance(node, ast.Raise):
            return True
        if isinstance(node, ast.Call) and tail_of(node) in ("exit", "_exit", "abort", "quit", "fail", "kill"):
            return True
    return False


def catches_all(handler: ast.ExceptHandler) -> bool:
    """Say whether a handler takes any exception (bare, Exception, BaseException)."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or tail_of(kind) in ("Exception", "BaseException") for kind in kinds)


def distributed(file: File) -> bool:
    """Say whether this file shows that it runs as one of several processes."""
    return file.once("distributed", file.tree, lambda _: file.says(*EVIDENCE))
