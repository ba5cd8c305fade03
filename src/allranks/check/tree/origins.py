"""What an expression of one file is made of: ranks, clocks, random numbers, listings of directories.

Follows names to what is stored in them (in this function, those around it, the module, ``self`` of this class),
parameters to what this file passes for them, and calls of functions of this file to what they return. What comes from
elsewhere has no origin: unknown is not suspect.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache

from allranks.check.knowledge.tables import RankQuery, load
from allranks.check.sources.nodes import children, walk
from allranks.check.sources.source import File
from allranks.check.tree.syntax import calls_of, class_of, name_of, own
from allranks.check.tree.words import parts

# Origins: the kinds of knowledge/ranks.toml (global, local, node, group, size, many) and of knowledge/local.toml
# (clock, random, listing, ...), "sum" for arithmetic on what it is made of.
Origins = frozenset[str]
NOTHING: Origins = frozenset()
RANK_KINDS = frozenset({"global", "local", "node", "group"})
DEEPEST, MOST = 40, 60
_ENVIRONMENT = ("os.environ.get", "os.getenv", "environ.get", "getenv")
_OF_MESH = frozenset({"mesh", "dp", "fsdp", "hsdp", "tp", "pp", "cp", "sp", "ep"})
# Whatever goes in, all processes get the same out.
_AGREED = ("allgather", "all_gather", "allreduce", "all_reduce")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_SCOPES = (*_FUNCTIONS, ast.Module)


def origins(node: ast.AST | None, file: File) -> Origins:
    """Return what ``node`` is made of."""
    return file.once("origins", node, lambda it: _made_of(it, file, set(), 0)) if node is not None else NOTHING


def _made_of(node: ast.AST, file: File, seen: set[int], depth: int) -> Origins:
    """``seen``: what was stored under names on the way, each looked at once."""
    if depth > DEEPEST or isinstance(node, ast.Constant):
        return NOTHING
    if isinstance(node, ast.Name | ast.Attribute):
        return _of_name(node, file, seen, depth + 1)
    if isinstance(node, ast.Call):
        return _of_call(node, file, seen, depth + 1)
    if isinstance(node, ast.Subscript) and name_of(node.value, file) in ("os.environ", "environ"):
        return _of_variable(node.slice)
    made = _union(children(node), file, seen, depth)
    return made | {"sum"} if made and isinstance(node, ast.BinOp) else made


def _union(nodes: Sequence[ast.AST], file: File, seen: set[int], depth: int) -> Origins:
    made = NOTHING
    for node in nodes:
        made |= _made_of(node, file, seen, depth + 1)
    return made


def _of_variable(name: ast.AST) -> Origins:
    constant = name.value if isinstance(name, ast.Constant) else None
    return _kinds(load().rank("environment", constant)) if isinstance(constant, str) else NOTHING


def _of_name(node: ast.Name | ast.Attribute, file: File, seen: set[int], depth: int) -> Origins:
    stored = values(node, file) or passed(node, file)
    if stored:
        new = [value for value in stored if id(value) not in seen and not _stored_later(value, node, file)]
        new = new[: max(MOST - len(seen), 0)]
        seen.update(map(id, new))
        made = _union(new, file, seen, depth)
        if made or (values(node, file) and not _is_told(stored, file)):
            return made
    dotted = name_of(node, file)
    if isinstance(node, ast.Name):
        return _kinds(load().rank_called(node.id))
    query = load().query("attribute", dotted, node.attr) or load().rank_called(node.attr)
    return _kinds(query) if query is not None else _made_of(node.value, file, seen, depth)


def _is_told(stored: list[ast.expr], file: File) -> bool:
    """Whether only unknown code says what is stored: then its name tells."""
    return all(isinstance(v, ast.Call) and not v.args and function_called(v, file) is None for v in stored)


def _kinds(query: RankQuery | None) -> Origins:
    return frozenset({query.kind}) if query is not None else NOTHING


def _of_call(call: ast.Call, file: File, seen: set[int], depth: int) -> Origins:
    dotted = name_of(call, file)
    last = dotted.rpartition(".")[2] or (call.func.attr if isinstance(call.func, ast.Attribute) else "")
    if dotted in _ENVIRONMENT and call.args:
        return _of_variable(call.args[0])
    if (
        last.startswith("broadcast")
        or any(word in last for word in _AGREED)
        or (last in ("iterdir", "glob", "rglob") and _is_of_archive(call, file))
    ):
        return NOTHING
    if last == "get_local_rank" and _is_of_mesh(call, file):
        return frozenset({"group"})
    query = load().query("call", dotted, last)
    local = load().local.get(dotted) or load().local.get(f"*.{last}")
    if query is not None or local is not None:
        return _kinds(query) or frozenset({local or ""})
    function = function_called(call, file)
    if function is not None:
        new = [n for n in file.once("returns", function, _returns) if id(n) not in seen]
        seen.update(map(id, new))
        return _union(new, file, seen, depth)
    # A switch (`verbose=rank == 0`) is no number of which something is made.
    switched = (keyword.value for keyword in call.keywords if not isinstance(keyword.value, ast.Compare))
    taken = [*call.args, *switched]
    if isinstance(call.func, ast.Attribute):
        taken.append(call.func.value)
    made = _union(taken, file, seen, depth) or (NOTHING if call.args else _kinds(load().rank_called(last)))
    return made - {"listing"} if last in ("sorted", "natsorted", "len") else made


def _is_of_archive(call: ast.Call, file: File) -> bool:
    """``zipfile.Path(archive).iterdir()``: an archive has an order of its own, the same for all that read it."""
    folder = call.func.value if isinstance(call.func, ast.Attribute) else call
    return any(name_of(one, file) == "zipfile.Path" for one in (folder, *values(folder, file)))


def _is_of_mesh(call: ast.Call, file: File) -> bool:
    """``mesh.get_local_rank("dp")``; ``dp = mesh["dp"]`` and ``dp.get_local_rank()``"""
    of = call.func.value if isinstance(call.func, ast.Attribute) else call.func
    return bool(call.args) or any(parts(ast.unparse(one)) & _OF_MESH for one in (of, *values(of, file)))


def _returns(function: ast.AST) -> tuple[ast.Return, ...]:
    return tuple(node for node in own(function) if isinstance(node, ast.Return))


def names_ranks(file: File) -> bool:
    """Say whether anything in a file may have a rank as its origin: it has a name for one."""
    return file.once("names ranks", file.tree, lambda _: any(map(_names_rank, _names_in(file))))


@lru_cache(50_000)
def _names_rank(name: str) -> bool:
    called = load().rank_called(name)
    return name.lstrip("_") in _rank_words() or (called is not None and called.kind in RANK_KINDS)


@cache
def _rank_words() -> frozenset[str]:
    """Return the last parts of the names of all that gives a rank, as they may be written."""
    rows = (row for table in load().ranks.values() for row in table.items())
    words = {name.rpartition(".")[2] for name, query in rows if query.kind in RANK_KINDS}
    words |= {alias.rpartition(".")[2] for alias, meant in load().aliases.items() if meant.rpartition(".")[2] in words}
    return frozenset(words)


def _names_in(file: File) -> Iterator[str]:
    """Yield the last parts of names in a file, and its texts."""
    yield from (node.id for node in file.kinds.get(ast.Name, ()) if isinstance(node, ast.Name))
    yield from (node.attr for node in file.kinds.get(ast.Attribute, ()) if isinstance(node, ast.Attribute))
    constants = (node.value for node in file.kinds.get(ast.Constant, ()) if isinstance(node, ast.Constant))
    yield from (value for value in constants if isinstance(value, str))
    yield from (dotted.rpartition(".")[2] for dotted in file.imports.values())


def function_called(call: ast.Call, file: File) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """Return the function of this file that ``call`` runs: one of the module, or a method by ``self``."""
    file.steps.take()
    name = call.func
    if isinstance(name, ast.Attribute) and isinstance(name.value, ast.Name) and name.value.id == "self":
        around = class_of(call, file)
        return file.once("functions", around, _functions).get(name.attr) if around is not None else None
    return function_named(name, file)


def function_named(name: ast.expr, file: File) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """Return the function of the module that bears a name."""
    return file.once("functions", file.tree, _functions).get(name.id) if isinstance(name, ast.Name) else None


def _functions(owner: ast.Module | ast.ClassDef) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    found = (s for s in reversed(owner.body) if isinstance(s, ast.FunctionDef | ast.AsyncFunctionDef))
    return {function.name: function for function in found}


def values(node: ast.AST, file: File) -> list[ast.expr]:
    """Return the expressions that are stored under a name or attribute, where ``node`` stands; kept."""
    file.steps.take()
    kept: list[ast.expr] | None = node.__dict__.get("values")
    if kept is None:
        kept = node.__dict__["values"] = _values(node, file)
    return kept


def _values(node: ast.AST, file: File) -> list[ast.expr]:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        if node.value.id == "self":
            owner = next((p for p in file.parents(node) if isinstance(p, ast.ClassDef)), file.tree)
            return file.bindings.get((owner, f".{node.attr}"), [])
        return _looked_up(f"{node.value.id}.{node.attr}", node, file)
    return _looked_up(node.id, node, file) if isinstance(node, ast.Name) else []


def latest(node: ast.AST, file: File) -> list[ast.expr]:
    """Return what may be stored under a name or attribute where ``node`` stands: what was stored for certain last
    before it in this function, and what may have been stored behind that."""
    stored = values(node, file)
    around = next((p for p in file.parents(node) if isinstance(p, _FUNCTIONS)), None)
    if len(stored) < 2 or around is None or around not in file.parents(stored[0]):
        return stored
    before = [value for value in stored if (value.end_lineno or 0) < getattr(node, "lineno", 0)] or stored
    certain = [at for at, value in enumerate(before) if not may_be_skipped(value, file)]
    return before[certain[-1] :] if certain else before


def _stored_later(value: ast.expr, node: ast.Name | ast.Attribute, file: File) -> bool:
    """Say whether ``value`` is stored in the function of ``node``, below it, and no loop leads back to it."""
    if value.lineno <= (node.end_lineno or 0) or not isinstance(node, ast.Name):
        return False
    around, above = _within_scope(node, file), _within_scope(value, file)
    looped = any(isinstance(parent, ast.For | ast.While | ast.AsyncFor) and parent in above for parent in around)
    return around[-1:] == above[-1:] and not looped


def _within_scope(node: ast.AST, file: File) -> list[ast.AST]:
    """Return what encloses ``node``, up to its function or module."""
    found = []
    for parent in file.parents(node):
        found.append(parent)
        if isinstance(parent, _SCOPES):
            break
    return found


def may_be_skipped(node: ast.AST, file: File) -> bool:
    """Say whether ``node`` stands in a branch or loop of its function."""
    for parent in file.parents(node):
        if isinstance(parent, ast.If | ast.Try | ast.TryStar | ast.Match | ast.For | ast.While):
            return True
        if isinstance(parent, (*_FUNCTIONS, ast.ClassDef)):
            return False
    return False


def _looked_up(name: str, node: ast.AST, file: File) -> list[ast.expr]:
    for scope in _scopes(node, file):
        found = file.bindings.get((scope, name))
        if found is not None:
            return found
        if isinstance(scope, _FUNCTIONS) and name in _names_of(scope.args):
            return []
    return []


def passed(node: ast.AST, file: File) -> list[ast.expr]:
    """Return what calls in this file pass for the parameter that ``node`` names."""
    file.steps.take()
    if not isinstance(node, ast.Name):
        return []
    for scope in _scopes(node, file):
        if (scope, node.id) in file.bindings:
            return []
        if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef) and node.id in _names_of(scope.args):
            return file.once(f"passed for {node.id}", scope, lambda it: _passed(it, node.id, file))
    return []


def _passed(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str, file: File) -> list[ast.expr]:
    owner = class_of(function, file)
    makes = owner is not None and function.name == "__init__"
    called = owner.name if owner is not None and makes else function.name
    plain = [a.arg for a in [*function.args.posonlyargs, *function.args.args]]
    position = plain.index(name) - (owner is not None and plain[:1] == ["self"]) if name in plain else -1
    found = []
    for call in calls_of(file).get(called, ()):
        if makes or function_called(call, file) is function or (owner is not None and _is_of(call, owner, file)):
            given = next((k.value for k in call.keywords if k.arg == name), None)
            if given is None and 0 <= position < len(call.args):
                given = call.args[position]
            found += [given] if given is not None else []
    return found


def _is_of(call: ast.Call, owner: ast.ClassDef, file: File) -> bool:
    """``rows = Rows(path)`` and ``rows.part(rank)``: a method of an object that this file makes."""
    of = call.func.value if isinstance(call.func, ast.Attribute) else None
    made = values(of, file) if isinstance(of, ast.Name) else []
    return any(isinstance(one, ast.Call) and name_of(one, file) == owner.name for one in made)


def _scopes(node: ast.AST, file: File) -> Iterator[ast.AST]:
    return (parent for parent in file.parents(node) if parent.__class__ in _SCOPES)


def _names_of(arguments: ast.arguments) -> list[str]:
    return [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


def reached(node: ast.AST, file: File) -> Iterator[ast.AST]:
    """Yield ``node``, and what is stored under the names in it, and so on: each once, `MOST` at most."""
    waiting, seen = [node], {id(node)}
    while waiting:
        at = waiting.pop(0)
        yield at
        for inner in walk(at):
            for value in values(inner, file) if isinstance(inner, ast.Name | ast.Attribute) else ():
                if id(value) not in seen and len(seen) < MOST:
                    seen.add(id(value))
                    waiting.append(value)


def is_handed(path: ast.expr, file: File) -> bool:
    """Say whether a caller elsewhere gives a part of a path."""
    names = [at for one in reached(path, file) for at in walk(one) if isinstance(at, ast.Name)]
    bare = (at for at in names if not isinstance(next(file.parents(at), None), ast.Attribute | ast.Subscript))
    function = next((at for at in file.parents(path) if isinstance(at, ast.FunctionDef | ast.AsyncFunctionDef)), None)
    parameters = {at.arg for at in walk(function.args) if isinstance(at, ast.arg)} if function is not None else set()
    return any(at.id in parameters and not values(at, file) and not passed(at, file) for at in bare)
