"""What gives a process its part of the data, from the loop that goes over it back to what deals it out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tables.data import HELD_OUT, LOADERS
from allranks.check.tree.origins import function_called, passed, values
from allranks.check.tree.splits import PREPARING, split_at
from allranks.check.tree.syntax import given, has_stars, inside, keyword, name_of, own, speaks_of, tail_of

_PASSES_ON = ("tqdm", "trange", "enumerate", "iter", "zip", "islice", "track", "cycle", "list", "log_every", "Subset")
_SAMPLER = re.compile(r"Distributed\w*Sampler|DistSampler|Sampler\w*Distributed")
_OF_ALL = re.compile(r"^(Random|Sequential)Sampler$")
_ASKED = re.compile(
    r"(?i)dist|rank|world|ddp|gpu|parallel|multi|horovod|hvd|replica|launch|train|val|eval|test|is None"
)


def passed_on(node: ast.expr) -> ast.expr:
    """Return the data itself: ``loader`` of ``enumerate(tqdm(loader))``."""
    while isinstance(node, ast.Call) and tail_of(node) in _PASSES_ON and node.args:
        node = node.args[0]
    return node


def dealt_at(node: ast.expr, file: File) -> ast.AST | None:
    """Return what deals out the data that an expression gives, as far as this file shows it."""
    return _dealt(node, file, set())


def _dealt(node: ast.expr, file: File, seen: set[ast.expr], made: ast.Call | None = None) -> ast.AST | None:
    """``made``: the call of the function that gives it."""
    data = passed_on(node)
    if data in seen:
        return None
    seen.add(data)
    if (found := next((at for at in walk(data) if split_at(at, file) is not None), None)) is not None:
        return found
    if isinstance(data, ast.Name | ast.Attribute):
        stored = values(data, file) or passed(data, file)
        return _first(stored, file, seen, made)
    if isinstance(data, ast.Tuple):
        return _first([one for one in data.elts if speaks_of(one, HELD_OUT)], file, seen)
    if not isinstance(data, ast.Call):
        return None
    if (sampler := keyword(data, "sampler") or keyword(data, "batch_sampler")) is not None:
        return _sampler(sampler, file, set(), made) or _first(data.args[:1], file, seen)
    if tail_of(data) in PREPARING:
        return data
    called = function_called(data, file)
    back = [at.value for at in own(called) if isinstance(at, ast.Return) and at.value] if called is not None else []
    if back:
        return _first(back, file, seen, data)
    return _first(data.args[:1] if tail_of(data).endswith("Loader") else [], file, seen)


def is_whole(node: ast.expr, file: File) -> bool:
    """Whether this file shows that an expression gives all of the data: by loaders whose samplers know no processes."""
    return _is_whole(node, file, set())


def _is_whole(node: ast.expr, file: File, seen: set[ast.expr]) -> bool:
    data = passed_on(node)
    if data in seen:
        return False
    seen.add(data)
    if isinstance(data, ast.Name | ast.Attribute):
        stored = values(data, file) or passed(data, file)
        return bool(stored) and all(_is_whole(one, file, seen) for one in stored)
    if not isinstance(data, ast.Call) or name_of(data, file) not in LOADERS or has_stars(data):
        return False
    sampler = keyword(data, "sampler") or keyword(data, "batch_sampler")
    made = [] if sampler is None else values(sampler, file) or [sampler]
    return all(isinstance(one, ast.Call) and _OF_ALL.search(tail_of(one)) for one in made)


def _tests(node: ast.AST, file: File) -> Iterator[str]:
    """Yield the conditions under which something is made, in its function."""
    for above, child in inside(node, file):
        if isinstance(above, ast.If | ast.IfExp) and child is not above.test:
            yield ast.unparse(above.test)


def _of_processes(test: str) -> bool:
    """Whether a condition asks for several processes, or what the data is for: not what its user likes."""
    return bool(_ASKED.search(test))


def _first(nodes: list[ast.expr], file: File, seen: set[ast.expr], made: ast.Call | None = None) -> ast.AST | None:
    found = (_dealt(one, file, seen, made) for one in nodes)
    return next((one for one in found if one is not None), None)


def _sampler(node: ast.expr, file: File, seen: set[ast.expr], made: ast.Call | None) -> ast.AST | None:
    """Return the call of a sampler that deals out samples, also within one that makes batches."""
    if node in seen:
        return None
    seen.add(node)
    if isinstance(node, ast.Call) and _SAMPLER.search(tail_of(node)):
        passed_by = made is None or not _is_ruled_out(node, made, file)
        return node if passed_by and all(map(_of_processes, _tests(node, file))) else None
    parts = [*node.args, *(k.value for k in node.keywords)] if isinstance(node, ast.Call) else values(node, file)
    parts = [node.body, node.orelse] if isinstance(node, ast.IfExp) else parts
    found = (_sampler(one, file, seen, made) for one in parts)
    return next((one for one in found if one is not None), None)


def _is_ruled_out(sampler: ast.Call, made: ast.Call, file: File) -> bool:
    """Whether a call gives its function a constant with which this sampler is not made: ``loader("val")`` where it
    stands under ``split == "train"``."""
    function = function_called(made, file)
    names = [at.arg for at in (*function.args.posonlyargs, *function.args.args)] if function is not None else []
    for above, child in inside(sampler, file):
        if not isinstance(above, ast.If | ast.IfExp) or child is above.test:
            continue
        asked, wanted = _asked(above.test)
        if not isinstance(asked, ast.Name) or asked.id not in names or not isinstance(wanted, ast.Constant):
            continue
        said = given(made, names.index(asked.id), asked.id)
        taken = child is above.body or (isinstance(above.body, list) and child in above.body)
        if isinstance(said, ast.Constant) and (said.value == wanted.value) != taken:
            return True
    return False


def _asked(test: ast.expr) -> tuple[ast.expr, ast.expr]:
    """``split == "train"``: what is asked, and for what; a name by itself is asked whether it is true."""
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq) and len(test.ops) == 1:
        return test.left, test.comparators[0]
    return test, ast.Constant(True)
