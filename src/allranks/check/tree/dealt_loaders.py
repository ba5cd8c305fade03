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
from allranks.check.tree.syntax import has_stars, inside, keyword, name_of, own, speaks_of, tail_of

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


def _dealt(node: ast.expr, file: File, seen: set[ast.expr]) -> ast.AST | None:
    data = passed_on(node)
    if data in seen:
        return None
    seen.add(data)
    if (found := next((at for at in walk(data) if split_at(at, file) is not None), None)) is not None:
        return found
    if isinstance(data, ast.Name | ast.Attribute):
        stored = values(data, file) or passed(data, file)
        return _first(stored, file, seen)
    if isinstance(data, ast.Tuple):
        return _first([one for one in data.elts if speaks_of(one, HELD_OUT)], file, seen)
    if not isinstance(data, ast.Call):
        return None
    if (sampler := keyword(data, "sampler") or keyword(data, "batch_sampler")) is not None:
        return _sampler(sampler, file, set()) or _first(data.args[:1], file, seen)
    if tail_of(data) in PREPARING:
        return data
    called = function_called(data, file)
    given = [at.value for at in own(called) if isinstance(at, ast.Return) and at.value] if called is not None else []
    return _first(given or (data.args[:1] if tail_of(data).endswith("Loader") else []), file, seen)


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


def _first(nodes: list[ast.expr], file: File, seen: set[ast.expr]) -> ast.AST | None:
    found = (_dealt(one, file, seen) for one in nodes)
    return next((one for one in found if one is not None), None)


def _sampler(node: ast.expr, file: File, seen: set[ast.expr]) -> ast.AST | None:
    """Return the call of a sampler that deals out samples, also within one that makes batches."""
    if node in seen:
        return None
    seen.add(node)
    if isinstance(node, ast.Call) and _SAMPLER.search(tail_of(node)):
        return node if all(map(_of_processes, _tests(node, file))) else None
    parts = [*node.args, *(k.value for k in node.keywords)] if isinstance(node, ast.Call) else values(node, file)
    parts = [node.body, node.orelse] if isinstance(node, ast.IfExp) else parts
    found = (_sampler(one, file, seen) for one in parts)
    return next((one for one in found if one is not None), None)
