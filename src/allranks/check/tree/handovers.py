"""What some ranks hand over to others through files in one function, with nothing between at which the ranks wait."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.earlier import callers
from allranks.check.tree.one_rank import goes_on, on_one
from allranks.check.tree.origins import RANK_KINDS, origins, passed, reached, values
from allranks.check.tree.syntax import arguments, asks_rank, function_of, inside, own, rank_guard, tail_of
from allranks.check.tree.words import mentions, parts, says

_MODULES = ("os", "shutil", "self", "np", "torch", "json", "pickle", "os.path", "subprocess")
_JOINS = ("join", "Path", "with_suffix", "joinpath")
# Writers that do not make the folder of a file.
_WRITERS = ("save", "savez", "imwrite", "to_csv", "write_text", "write_bytes", "savefig", "dump", "copyfile")
_FILLS = frozenset({"fetch", "download", "extract", "extractall", "unpack", "makedirs", "mkdir", "copytree"})
_NAMED = (ast.Name, ast.Attribute)
_MOVES = frozenset({"copy", "copyfile", "copytree", "replace", "rename", "move"})


@dataclass(frozen=True, slots=True)
class Handover:
    """``read`` comes to the path ``name`` that ``made`` may not have finished; ``parts``: each rank made its part."""

    made: ast.Call
    read: ast.AST
    name: str
    parts: bool = False


def handovers(scope: ast.AST, file: File) -> Iterator[Handover]:
    """Yield what is handed over in a function or module: the first use of each path."""
    calls = sorted((at for at in own(scope) if isinstance(at, ast.Call)), key=lambda at: (at.lineno, at.col_offset))
    found: set[str] = set()
    for at, made in enumerate(calls):
        if not _makes(made, file) or any(_is_turn(parent) for parent, _ in inside(made, file)):
            continue
        if rank_guard(made, file) is None:
            one = _of_parts(made, calls[at + 1 :], file)
        else:
            one = _of_one(made, calls[at + 1 :], file) if on_one(made, file) is not None else None
        if one is not None and one.name not in found:
            found.add(one.name)
            yield one


def _of_one(made: ast.Call, later: list[ast.Call], file: File) -> Handover | None:
    """Rank 0 makes something, and all go on to use it."""
    fills, folder = not parts(tail_of(made)).isdisjoint(_FILLS), tail_of(made) in ("makedirs", "mkdir")
    paths = {ast.unparse(one) for one in _given(made, file) if is_path(one) or (folder and isinstance(one, _NAMED))}
    for call in later if paths else ():
        if waits(call):
            return None
        if (
            not (_fills(call) if folder else _reads(call))
            or rank_guard(call, file) is not None
            or _is_asked(call, file)
            or not goes_on(made, call, file)
        ):
            continue
        given = _given(call, file)
        named = [*given, *(at for one in given for at in walk(one) if fills and isinstance(at, ast.expr))]
        name = next((text for text in map(ast.unparse, named) if text in paths), "")
        if name and not _is_renewed(name, made, call, file):
            return Handover(made, call, name)
    return _given_back(made, paths, file)


def _given_back(made: ast.Call, paths: set[str], file: File) -> Handover | None:
    """Rank 0 makes something, and its function gives the path to all, of whom none waits where it is called here."""
    function = function_of(made, file)
    calls = callers(function, file) if function is not None else []
    fetches = function is not None and any(says(name, "fetches") for name in (function.name, tail_of(made)))
    if function is None or not fetches or not calls or any(map(_is_followed, calls, repeat(file))):
        return None
    for at in (one for one in own(function) if isinstance(one, ast.Return) and one.value is not None):
        told = ast.unparse(at.value) if at.value is not None else ""
        if told in paths and goes_on(made, at, file) and rank_guard(at, file) is None:
            return Handover(made, at, told)
    return None


def _is_followed(call: ast.Call, file: File) -> bool:
    """Whether one rank alone makes a call, or the ranks may wait for each other behind it."""
    later = (at for at in own(function_of(call, file) or file.tree) if isinstance(at, ast.Call))
    return rank_guard(call, file) is not None or any(waits(at) for at in later if at.lineno > call.lineno)


def _of_parts(made: ast.Call, later: list[ast.Call], file: File) -> Handover | None:
    """Every rank writes a part under a name of its own, and rank 0 goes on to read them, or says that all is there."""
    folders = {text for one in _given(made, file) if origins(one, file) & RANK_KINDS for text in _folders(one, file)}
    for call in later if folders else ():
        if waits(call):
            return None
        uses = says(tail_of(call), "reads_files") and (not _opens(call) or mentions(call, "marks"))
        if uses and on_one(call, file) is not None and goes_on(made, call, file):
            inner = (at for one in arguments(call) for at in walk(one) if isinstance(at, ast.expr))
            name = next((text for text in map(ast.unparse, inner) if text in folders), "")
            if name:
                return Handover(made, call, name, parts=True)
    return None


def waits(call: ast.Call) -> bool:
    """Say whether the ranks may wait for each other in a call, by its name."""
    return tail_of(call) != "__init__" and says(ast.unparse(call.func), "waits")


def _makes(call: ast.Call, file: File) -> bool:
    """Whether a call makes or changes a file, by its name, or as a statement that does not read or print."""
    name = tail_of(call)
    acts = isinstance(next(file.parents(call), None), ast.Expr) and not says(name, "reads_files", "prints")
    return says(name, "makes_files") or _opens(call) or acts


def _reads(call: ast.Call) -> bool:
    """Whether a call reads a file or lists a folder, by its name, or makes an object of a base that does."""
    reads = says(tail_of(call), "reads_files") and not says(tail_of(call), "publishes") and not _opens(call)
    return reads or tail_of(call) == "__init__"


def _fills(call: ast.Call) -> bool:
    """Whether a call writes a file into a folder."""
    return _opens(call) or tail_of(call) in _WRITERS


def _is_renewed(path: str, made: ast.Call, read: ast.Call, file: File) -> bool:
    """Whether another path is stored under this name between two calls."""
    stores = (at for at in own(function_of(made, file) or file.tree) if isinstance(at, ast.Assign))
    between = (at for at in stores if made.lineno < at.lineno <= read.lineno)
    return any(ast.unparse(target) == path for at in between for target in at.targets)


def _opens(call: ast.Call) -> bool:
    """Whether it is ``open(path, "w")``."""
    modes = [one.value for one in arguments(call)[1:2] if isinstance(one, ast.Constant)]
    return tail_of(call) == "open" and any(isinstance(mode, str) and mode[:1] in ("w", "a", "x") for mode in modes)


def _is_turn(parent: ast.AST) -> bool:
    """Whether it lets one process in after the other."""
    return isinstance(parent, ast.With) and says(ast.unparse(parent.items[0].context_expr), "waits", "turns")


def _is_asked(call: ast.Call, file: File) -> bool:
    """Whether a condition or a try asks whether the path is there."""
    tests = (p.test for p, c in inside(call, file) if isinstance(p, ast.If | ast.IfExp | ast.While) and c is not p.test)
    asks = any("exist" in ast.unparse(test) or asks_rank(test) for test in tests)
    return asks or any(isinstance(p, ast.Try) and c in p.body for p, c in inside(call, file))


def _given(call: ast.Call, file: File) -> list[ast.expr]:
    """Return what may be paths of a call: what it is given, and its receiver; of a copy only where it goes."""
    given = arguments(call)[-1:] if not parts(tail_of(call)).isdisjoint(_MOVES) else arguments(call)
    receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
    if isinstance(receiver, ast.Name | ast.Attribute) and ast.unparse(receiver) not in _MODULES:
        given = [*given, receiver]
    return [*given, *(value for one in given if isinstance(one, ast.Name) for value in values(one, file))]


def is_path(node: ast.expr) -> bool:
    """Say whether an expression is a path of a file or folder, by its name or form."""
    if isinstance(node, ast.Name | ast.Attribute):
        return says(tail_of(node), "paths") and "pretrained" not in tail_of(node)
    joined = isinstance(node, ast.Call) and tail_of(node) in _JOINS
    return joined or (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div))


def _folders(node: ast.expr, file: File) -> Iterator[str]:
    """Yield the folder of a path that is joined: ``os.path.join(folder, name)``, ``folder / name``."""
    for at in (node, *values(node, file)):
        if isinstance(at, ast.Call) and tail_of(at) == "join" and len(at.args) > 1:
            yield ast.unparse(at.args[0])
        elif isinstance(at, ast.BinOp) and isinstance(at.op, ast.Div):
            yield ast.unparse(at.left)
        elif isinstance(at, ast.JoinedStr) and isinstance(at.values[0], ast.FormattedValue):
            yield ast.unparse(at.values[0].value)


def is_handed(path: ast.expr, file: File) -> bool:
    """Say whether a caller elsewhere gives a part of a path."""
    names = [at for one in reached(path, file) for at in walk(one) if isinstance(at, ast.Name)]
    bare = (at for at in names if not isinstance(next(file.parents(at), None), ast.Attribute | ast.Subscript))
    function = function_of(path, file)
    parameters = {at.arg for at in walk(function.args) if isinstance(at, ast.arg)} if function is not None else set()
    return any(at.id in parameters and not values(at, file) and not passed(at, file) for at in bare)
