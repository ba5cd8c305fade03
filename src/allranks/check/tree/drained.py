"""Where the part of the data that a process is dealt is read to its end, though the parts may differ in length."""

from __future__ import annotations

import ast
import re

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tables.data import HELD_OUT
from allranks.check.tree.origins import function_called, latest
from allranks.check.tree.splits import Split
from allranks.check.tree.syntax import (
    bases_of,
    class_of,
    function_of,
    inside,
    is_called,
    is_constant,
    keyword,
    own,
    speaks_of,
    tail_of,
)

# Words of code that thought of it.
EVEN = (
    *("drop_last", "even_batches", "pad_to", "repeat", "cycle", "steps_per_epoch", "max_steps", "total_size"),
    *("num_samples", "truncate", "join_uneven", "while True", "apply_padding=True", "infinite", "num_per_rank"),
)
_WRAPPED = re.compile(
    r"DistributedDataParallel|FullyShardedDataParallel|fully_shard|accelerator\.prepare|deepspeed\.init"
)
_AGAIN = re.compile(r"train|epoch|shuffle|permut|randperm", re.IGNORECASE)


def is_drained(split: Split, file: File) -> bool:
    """It feeds a generator that goes on until the source ends, and nothing there speaks of equal numbers."""
    function = function_of(split.node, file)
    if function is None:
        return False
    if _is_repeated(function, file) or _comes_even(split.source, file) or _is_one_of_all(split, file):
        return False
    samples = _is_sampling(function, file)
    generators = [function] if samples or _yields(function) else _fed_by(function, split.node, file)
    around = function if samples else class_of(function, file) or function
    text = "".join(map(_text, [around, *(g for g in generators if g is not function)])) if generators else ""
    return bool(generators) and not any(word in text for word in EVEN) and " // " not in text


def _is_one_of_all(split: Split, file: File) -> bool:
    """A batch is dealt out in itself, and what each rank has of it is a batch too: ``yield batch[rank::size]``."""
    parent = next(iter(file.parents(split.node)), None)
    return isinstance(parent, ast.Yield) and isinstance(split.source, ast.Name)


def is_stepped(split: Split, file: File) -> bool:
    """A loop goes through it, and through a backward pass of a wrapped model for each item."""
    function, above = (
        function_of(split.node, file),
        next((p for p in file.parents(split.node) if isinstance(p, ast.stmt)), None),
    )
    around = function or file.tree
    names = {ast.unparse(target) for target in above.targets} if isinstance(above, ast.Assign) else set()
    text = _speaking_of(names | {ast.unparse(split.source)}, around)
    if not _WRAPPED.search(file.text) or any(word in text for word in (*EVEN, " // ", " % ")) or "Join(" in file.text:
        return False
    loops = (at for at in own(around) if isinstance(at, ast.For) and _is_part(at.iter, split.node, names))
    return not _comes_even(split.source, file) and any(_steps(loop) for loop in loops)


def _is_part(source: ast.expr, part: ast.AST, names: set[str]) -> bool:
    """``files``, ``enumerate(files)``, ``tqdm(files)``: the part itself."""
    inner = source.args[0] if isinstance(source, ast.Call) and source.args else source
    return inner is part or (isinstance(inner, ast.Name) and inner.id in names)


def _steps(loop: ast.For) -> bool:
    calls = [tail_of(at) for at in own(loop) if isinstance(at, ast.Call)]
    leaves = any(isinstance(at, ast.Break) for at in own(loop))
    return "backward" in calls and "no_sync" not in calls and not leaves


def _comes_even(source: ast.AST, file: File) -> bool:
    """What is dealt out comes from a function of this file that never ends, or that cuts or pads it."""
    calls = [at for at in walk(source) if isinstance(at, ast.Call)]
    functions = (function_called(call, file) for call in calls)
    texts = [ast.unparse(function) for function in functions if function is not None]
    return any(word in text for text in texts for word in (*EVEN, " // ") if word != "repeat")


def is_loaded(split: Split, file: File) -> bool:
    """A loader of training data goes through it as it is, to its last batch."""
    function = function_of(split.node, file)
    if function is None or HELD_OUT.search(function.name) or not speaks_of(function, _AGAIN):
        return False
    above = next((p for p in file.parents(split.node) if isinstance(p, ast.stmt)), None)
    names = {ast.unparse(target) for target in above.targets} if isinstance(above, ast.Assign) else set()
    text = _but_test(_speaking_of(names | {ast.unparse(split.source)}, function), split)
    if any(word in text for word in (*EVEN, " // ", " % ", "divmod")) or _comes_even(split.source, file):
        return False
    if isinstance(above, ast.Assign) and speaks_of(above, HELD_OUT):
        return False
    loaders = (at for at in own(function) if isinstance(at, ast.Call) and _is_loader(at))
    return any(_goes_through(loader, split.node, names, file) for loader in loaders)


def is_of_loaded_dataset(split: Split, file: File) -> bool:
    """It is what a data set of this file keeps as its samples, and a loader here goes through such a data set while a
    wrapped model trains."""
    function, owner = function_of(split.node, file), class_of(split.node, file)
    above = next((p for p in file.parents(split.node) if isinstance(p, ast.stmt)), None)
    if owner is None or getattr(function, "name", "") != "__init__" or not isinstance(above, ast.Assign):
        return False
    length = next((ast.unparse(s) for s in owner.body if getattr(s, "name", "") == "__len__"), "")
    text = _but_test(ast.unparse(owner), split)
    if any(word in text for word in (*EVEN, " // ", " % ", "divmod")) or not _WRAPPED.search(file.text):
        return False
    if "Join(" in file.text or not any(f"len({ast.unparse(target)})" in length for target in above.targets):
        return False
    loaders = (at for at in file.kinds.get(ast.Call, ()) if isinstance(at, ast.Call) and _is_loader(at) and at.args)
    return any(_trains_on(loader, owner.name, file) for loader in loaders)


def _but_test(text: str, split: Split) -> str:
    """Return code without the test that deals out, whose remainder makes nothing even."""
    return text.replace(ast.unparse(split.node), "") if split.how == "modulo" else text


def _trains_on(loader: ast.Call, kind: str, file: File) -> bool:
    """A loader goes through an instance of a class, to its last batch, in a function that goes through it again."""
    function, text = function_of(loader, file), ast.unparse(loader)
    if is_called(loader, HELD_OUT, file) or any(word in text for word in EVEN) or speaks_of(loader.args[0], HELD_OUT):
        return False
    made = [at for at in (loader.args[0], *latest(loader.args[0], file)) if isinstance(at, ast.Call)]
    again = function is not None and not HELD_OUT.search(function.name) and speaks_of(function, _AGAIN)
    return bool(again) and any(tail_of(at) == kind for at in made)


def _goes_through(loader: ast.Call, part: ast.AST, names: set[str], file: File) -> bool:
    """A loader is given the part (or an order made of it) as what it reads, and nobody looks at it as held out."""
    if is_called(loader, HELD_OUT, file):
        return False
    ways = [keyword(loader, key) for key in ("sampler", "batch_sampler", "input_nodes")]
    read = [at for way in (*loader.args[:1], *ways) if way is not None for at in (way, *latest(way, file))]
    inside_those = [at for one in read for at in walk(one)]
    return any(at is part or (isinstance(at, ast.Name) and at.id in names) for at in inside_those)


def _text(around: ast.AST) -> str:
    """Return the code of a function or a class; what ``__len__`` says counts if the class asks for it."""
    if not isinstance(around, ast.ClassDef):
        return ast.unparse(around)
    text = "\n".join(ast.unparse(s) for s in around.body if getattr(s, "name", "") != "__len__")
    return ast.unparse(around) if "len(self)" in text else text


def _is_repeated(function: ast.AST, file: File) -> bool:
    """Somebody in this file begins it again for ever."""
    name = getattr(function, "name", "")
    loops = (n for n in file.nodes if isinstance(n, ast.While) and is_constant(n.test, True))
    return any(isinstance(at, ast.Call) and tail_of(at) == name for loop in loops for at in own(loop))


def _is_sampling(function: ast.AST, file: File) -> bool:
    """It is ``__iter__`` of a sampler: what it returns is what the loader goes through."""
    owner = class_of(function, file)
    samples = owner is not None and any(base.endswith("Sampler") for base in bases_of(owner, file))
    return samples and getattr(function, "name", "") == "__iter__"


def _yields(function: ast.AST) -> bool:
    return any(isinstance(n, ast.Yield | ast.YieldFrom) for n in own(function))


def _fed_by(function: ast.AST, split: ast.AST, file: File) -> list[ast.FunctionDef]:
    """Return the generators of the file that go over what ``function`` returns, if that is the split itself."""
    returns = next(file.parents(split), None)
    if not isinstance(returns, ast.Return) or not isinstance(function, ast.FunctionDef):
        return []
    functions = (n for n in file.nodes if isinstance(n, ast.FunctionDef) and n is not function)
    return [f for f in functions if _yields(f) and any(_goes_over(n, function.name) for n in own(f))]


def _goes_over(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and tail_of(node.iter) == name


def _speaking_of(names: set[str], function: ast.AST) -> str:
    """Return the assignments of a function in which one of these names stands, but those of loaders."""
    assigned = (at for at in own(function) if isinstance(at, ast.Assign | ast.AugAssign | ast.AnnAssign))
    texts = (ast.unparse(at) for at in assigned if not (isinstance(at.value, ast.Call) and _is_loader(at.value)))
    return "\n".join(text for text in texts if any(re.search(rf"\b{re.escape(name)}\b", text) for name in names))


def _is_loader(call: ast.Call) -> bool:
    return tail_of(call).endswith("Loader")


def is_kept(call: ast.Call, file: File) -> bool:
    """``with ... as part:`` whose body stores ``part`` itself in something that outlives it."""
    for parent, _ in inside(call, file):
        if isinstance(parent, ast.With):
            names = {i.optional_vars.id for i in parent.items if isinstance(i.optional_vars, ast.Name)}
            return any(
                isinstance(s, ast.Assign)
                and isinstance(s.value, ast.Name)
                and s.value.id in names
                and isinstance(s.targets[0], ast.Attribute | ast.Subscript)
                for s in parent.body
            )
    return False
