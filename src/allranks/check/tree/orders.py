"""What a process puts in an order by a random state of its own: lists, tables, data sets and their parts."""

from __future__ import annotations

import ast
import re

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.dealing import dealt_out_later
from allranks.check.tree.origins import RANK_KINDS, origins, reached
from allranks.check.tree.own_seeds import is_own_generator, is_own_seed, is_seeded, seeds
from allranks.check.tree.splits import splits
from allranks.check.tree.syntax import (
    bases_of,
    calls_of,
    class_of,
    distributed,
    function_of,
    given,
    has_stars,
    is_constant,
    keyword,
    name_of,
    own,
    tail_of,
)

# Call -> the keyword that makes it the same everywhere.
DRAWS = {
    "torch.utils.data.random_split": (2, "generator"),
    "sklearn.model_selection.train_test_split": (99, "random_state"),
}
SHUFFLES = ("random.shuffle", "numpy.random.shuffle", "numpy.random.permutation", "torch.randperm", "random.sample")
_TRAINS, _TESTS = re.compile(r"train"), re.compile(r"test|val|eval|dev")
# Functions that tell what is trained on from what is tested on.
_APART = re.compile(r"(?i)split|partition|train.*(val|test|dev)")
# What a data set is made of.
_ROWS = re.compile(
    r"file|example|sample|item|data|path|image|ids?$|ind(ex|ices)|idx|list|row|entr|record|shard|url|names"
)
# Methods of tables and data sets that draw from numpy's state -> the keyword that makes it the same everywhere.
METHODS = {"train_test_split": "seed", "shuffle": "seed", "sample": "random_state"}


def orders_dataset(call: ast.Call, file: File) -> bool:
    """The constructor of a data set shuffles by a seed that it sets itself, and that is this process' own."""
    function, owner = function_of(call, file), class_of(call, file)
    if function is None or owner is None or function.name != "__init__":
        return False
    data = any(base.endswith("Dataset") for base in bases_of(owner, file))
    family = name_of(call, file).partition(".")[0]
    set_here = (
        one for of, one, own_seed in file.once("seeds", file.tree, lambda _: seeds(file)) if family in of and own_seed
    )
    return data and any(function_of(one, file) is function and one.lineno < call.lineno for one in set_here)


def makes_dataset(call: ast.Call, data: str, file: File) -> bool:
    """A data set that others deal out by number shuffles what it is made of, where it is made."""
    function, owner = function_of(call, file), class_of(call, file)
    if function is None or owner is None or not _ROWS.search(data.lower()):
        return False
    maps = any(base.endswith("Dataset") and "Iterable" not in base for base in (*bases_of(owner, file), owner.name))
    maker = next((at for at in owner.body if isinstance(at, ast.FunctionDef) and at.name == "__init__"), None)
    made = maker is not None and any(isinstance(at, ast.Call) and tail_of(at) == function.name for at in own(maker))
    return maps and (function is maker or made)


def is_unseeded_method(call: ast.Call, file: File) -> bool:
    """``table.sample(frac=1)``, ``rows.shuffle()``, ``rows.train_test_split(test_size=0.1)``"""
    if not isinstance(call.func, ast.Attribute) or tail_of(call) not in METHODS or has_stars(call):
        return False
    word = tail_of(call)
    whole = is_constant(keyword(call, "frac"), 1) or is_constant(keyword(call, "frac"), 1.0)
    fits = whole if word == "sample" else (word == "train_test_split" or not (call.args or call.keywords))
    seed = keyword(call, METHODS[word]) or keyword(call, "generator")
    return fits and seed is None and not is_seeded(call, file, "numpy")


def is_dealt_out(call: ast.Call, file: File) -> bool:
    """Whether what a method returns is dealt out below, in the same file."""
    above = next((p for p in file.parents(call) if isinstance(p, ast.stmt)), None)
    names = [ast.unparse(target) for target in above.targets] if isinstance(above, ast.Assign) else []
    inside = any(at is call for split in splits(file.tree, file) for at in walk(split.source))
    return inside or any(dealt_out_later(call, name, file) is not None for name in names)


def tells_apart(call: ast.Call, file: File) -> bool:
    """``order = permutation(n)``, of which slices are what is trained on and what is tested on."""
    above, scope = next(file.parents(call), None), function_of(call, file)
    if scope is None or keyword(call, "generator") is not None:
        return False
    if not isinstance(above, ast.Assign) or not isinstance(above.targets[0], ast.Name):
        return False
    return _divides(scope, above.targets[0].id)


def divides_shuffled(call: ast.Call, data: str, file: File) -> bool:
    """``shuffle(rows)``, of which slices are what is trained on and what is tested on."""
    scope = function_of(call, file)
    return scope is not None and bool(_ROWS.search(data.lower())) and _divides(scope, data)


def _divides(scope: ast.AST, order: str) -> bool:
    """Whether slices of ``order`` are named for training and for tests, or given back by what is named for both."""
    nodes = own(scope)
    parts = [name for at in nodes if isinstance(at, ast.Assign) for name in _slices(at, order)]
    if any(map(_TRAINS.search, parts)) and any(map(_TESTS.search, parts)):
        return True
    pairs = (at.value.elts for at in nodes if isinstance(at, ast.Return) and isinstance(at.value, ast.Tuple))
    named = bool(_APART.search(getattr(scope, "name", "")))
    return named and any(sum(any(_is_slice(n, order) for n in walk(one)) for one in pair) > 1 for pair in pairs)


def _slices(assign: ast.Assign, order: str) -> list[str]:
    """Return what is made of slices of ``order``: ``train, test = Rows(x[order[:n]]), Rows(x[order[n:]])``"""
    target, value = assign.targets[0], assign.value
    both = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts)
    pairs = zip(target.elts, value.elts, strict=True) if both else [(target, value)]  # type: ignore[attr-defined]
    return [ast.unparse(one) for one, made in pairs if any(_is_slice(at, order) for at in walk(made))]


def _is_slice(node: ast.AST, name: str) -> bool:
    """``name[:n]``"""
    if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Slice):
        return False
    return isinstance(node.value, ast.Name) and node.value.id == name


def shuffled(call: ast.Call, file: File) -> str | None:
    """Return what ``call`` shuffles by a random state of this process alone."""
    argument = call.args[0] if call.args else None
    if argument is None or origins(argument, file) & RANK_KINDS:
        return None  # nothing, or what is this process' part already
    if name_of(call, file) in SHUFFLES:
        generator = keyword(call, "generator")
        drawn_alone = not is_seeded(call, file) if generator is None else is_own_generator(generator, file)
        return ast.unparse(argument) if drawn_alone else None
    if isinstance(call.func, ast.Attribute) and call.func.attr in ("shuffle", "permutation"):
        alone = is_own_seed(call.func.value, file) and not _is_seeded_above(call, call.func.value, file)
        return ast.unparse(argument) if alone and not _is_part(call.func.value, file) else None
    return None


def _is_part(source: ast.expr, file: File) -> bool:
    """``rows.shard(n, rank).repeat().shuffle(1000)``: what is shuffled is data that was dealt out before."""
    return any(isinstance(at, ast.Call) and tail_of(at) == "shard" for way in reached(source, file) for at in walk(way))


def _is_seeded_above(call: ast.Call, generator: ast.expr, file: File) -> bool:
    """Whether the function seeds its generator anew before it draws, with what is not this process' own."""
    function = function_of(call, file)
    above = (at for at in calls_of(file).get("seed", ()) if at.lineno < call.lineno and at.args)
    seeding = (at for at in above if function_of(at, file) is function)
    given_ones = [at.args[0] for at in seeding if ast.unparse(at.func) == f"{ast.unparse(generator)}.seed"]
    return function is not None and bool(given_ones) and not is_own_seed(given_ones[-1], file)


def draws_alone(call: ast.Call, file: File) -> bool:
    """It divides data by numbers that no seed in this file decides."""
    seed = given(call, *DRAWS[name_of(call, file)])
    if has_stars(call) or is_constant(keyword(call, "shuffle"), False) or is_seeded(call, file):
        return False
    return seed is None and not _starts_ranks(call, file)


def _starts_ranks(call: ast.Call, file: File) -> bool:
    """It runs in the process that starts the others, and what it draws is passed to them."""
    scope = function_of(call, file) or file.tree
    return any(isinstance(at, ast.Call) and tail_of(at) in ("spawn", "start_processes") for at in own(scope))


def is_program(file: File) -> bool:
    """The file itself starts or splits: it is the program, not a collection of functions."""
    words = ("init_process_group", "DistributedSampler", "Accelerator(", "Fabric(")
    return distributed(file) and any(word in file.text for word in words)
