"""Whether what a process draws at random comes from a seed of its own, as far as one file tells."""

from __future__ import annotations

import ast
import re

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tables.seeds import DECIDED, FAMILIES
from allranks.check.tree.origins import RANK_KINDS, latest, origins, passed, values
from allranks.check.tree.syntax import calls_of, function_of, name_of, tail_of

_SEEDERS = frozenset(
    [
        *("seed", "set_seed", "manual_seed", "seed_everything", "set_random_seed", "seed_all", "init_seeds"),
        *("set_seeds", "setup_seed", "fix_seed", "set_all_seeds", "init_seed", "manual_seed_all"),
    ]
)
# The seed that a process has drawn when nobody has set one, or that its loader's worker has.
_OWN_SEEDS = ("torch.initial_seed", "torch.seed", "torch.random.initial_seed", "torch.random.seed")
# Generators that seed themselves from the system if they are given nothing.
_ENTROPY = ("numpy.random.default_rng", "numpy.random.RandomState", "random.Random", "random.SystemRandom")
_AGREED = re.compile(r"broadcast|share|sync|reduce|gather|agree|same|all", re.IGNORECASE)
OWN = RANK_KINDS | {"clock", "random", "identity"}
_SAMPLER = re.compile(r"^[A-Z]\w*Sampler$")
_SIZES = frozenset({"num_replicas", "world_size", "num_processes", "process_count"})


def is_own_generator(generator: ast.expr, file: File) -> bool:
    """A generator of torch whose seed is this process' own."""
    function = function_of(generator, file) or file.tree
    set_here = [at for at in calls_of(file).get("manual_seed", ()) if (function_of(at, file) or file.tree) is function]
    name = ast.unparse(generator)
    made = [at for one in latest(generator, file) for at in walk(one)]
    of_it = [
        at
        for at in set_here
        if at in made or (isinstance(at.func, ast.Attribute) and ast.unparse(at.func.value) == name)
    ]
    return any(is_own_seed(at.args[0], file) for at in of_it if at.args)


def is_own_seed(seed: ast.expr, file: File) -> bool:
    """It holds the rank, a clock, a random number, or the seed that this process has drawn for itself."""
    if origins(seed, file) & OWN:
        return True
    return any(_is_own(at, file) for one in _sources(seed, file) for at in _alone(one))


def _is_own(call: ast.Call, file: File) -> bool:
    name = name_of(call, file)
    return name in _OWN_SEEDS or (name in _ENTROPY and not call.args and not call.keywords)


def _alone(expression: ast.AST) -> list[ast.Call]:
    """Return the calls in an expression that are not handed to one that makes all agree: ``share(torch.seed())``"""
    calls = [at for at in walk(expression) if isinstance(at, ast.Call)]
    agreed = {id(below) for at in calls if _AGREED.search(tail_of(at)) for below in walk(at)}
    return [at for at in calls if id(at) not in agreed]


def _sources(seed: ast.expr, file: File) -> list[ast.AST]:
    """Return an expression, and what is stored in this file under the names and attributes in it."""
    named = (at for at in walk(seed) if isinstance(at, ast.Name | ast.Attribute))
    return [seed, *(value for at in named for value in (values(at, file) or passed(at, file)))]


def is_seeded(draw: ast.Call, file: File, family: str = "") -> bool:
    """What it draws from has a seed that is the same on all processes: the last one set above, or any in the file."""
    family = family or name_of(draw, file).partition(".")[0]
    set_here = [(call, own) for of, call, own in file.once("seeds", file.tree, lambda _: seeds(file)) if family in of]
    function = function_of(draw, file)
    above = [one for one in set_here if one[0].lineno <= draw.lineno and function_of(one[0], file) is function]
    return not above[-1][1] if above and function is not None else any(not own for _, own in set_here)


def seeds(file: File) -> list[tuple[tuple[str, ...], ast.Call, bool]]:
    """Return the calls that set a seed by line: whose draws they decide, and whether the seed is the process' own."""
    calls = [n for n in file.nodes if isinstance(n, ast.Call) and tail_of(n) in _SEEDERS]
    found = []
    for call in sorted(calls, key=lambda n: n.lineno):
        family = name_of(call, file).partition(".")[0]
        given_ones = (*call.args, *(k.value for k in call.keywords))
        own_seed = any(origins(a, file) & OWN for a in given_ones)
        of = DECIDED.get(family, FAMILIES)
        found.append((of, call, own_seed))
    return found


def seeds_sampler(seed: ast.keyword, file: File) -> bool:
    """Whether it is a seed of this process' own, for a sampler of the project that is told how many processes there are
    and which this one is."""
    call = next(file.parents(seed))
    if seed.arg != "seed" or not (isinstance(call, ast.Call) and _SAMPLER.search(tail_of(call))):
        return False
    told, made = {k.arg for k in call.keywords}, origins(seed.value, file)
    return bool(told & _SIZES and "rank" in told and made & OWN) and "group" not in made
