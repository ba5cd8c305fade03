"""Which generator a draw takes its numbers from, and whether processes that make the draw get the same."""

from __future__ import annotations

import ast

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import RANK_KINDS, origins, passed, reached
from allranks.check.tree.syntax import arguments, calls_of, function_of, keyword, name_of, tail_of

# Kinds of origins that differ from process to process.
OWN = RANK_KINDS | {"clock", "random", "identity"}
_SHUFFLES = ("shuffle", "permutation", "randperm", "sample")
# Makers of a generator, which takes its seed from its first argument; what gives each process a seed of its own.
_GENERATORS = ("Random", "RandomState", "default_rng", "Generator", "PCG64", "manual_seed")
_SEEDLESS = ("initial_seed", "seed", "getrandbits", "SystemRandom")
_MODULES = ("random", "np.random", "numpy.random", "torch", "onp.random")


def draws_apart(draw: ast.Call, file: File) -> str:
    """Return how the processes come to draw differently: from a generator of their own (``generator``) or from that of
    a module which nobody seeds (``unseeded``); '' if they draw alike, or nobody knows."""
    if tail_of(draw) not in _SHUFFLES or origins(draw.args[0], file) & RANK_KINDS:
        return ""
    given_one = keyword(draw, "generator")
    of = draw.func.value if isinstance(draw.func, ast.Attribute) else None
    if given_one is None and (of is None or ast.unparse(of) in _MODULES):
        known = name_of(draw, file).rpartition(".")[0] in ("random", "numpy.random", "torch")
        return "unseeded" if known and not is_seeded(draw, file) else ""
    if given_one is None and is_of_pipeline(draw, file):
        plain = file.says("tensorflow") and keyword(draw, "seed") is None and len(draw.args) < 2
        return "generator" if plain and not file.says("set_seed") else ""
    makers = [at for one in reached(given_one or of or draw, file) for at in walk(one) if isinstance(at, ast.Call)]
    makers = [at for at in (*makers, *_seeded_later(given_one, file)) if tail_of(at) in _GENERATORS]
    return "generator" if makers and any(is_own_seed(at, file) for at in makers) else ""


def _seeded_later(generator: ast.expr | None, file: File) -> list[ast.Call]:
    """Return the calls ``generator.manual_seed(...)`` in its function."""
    name = ast.unparse(generator) if generator is not None else ""
    calls = (at for at in calls_of(file).get("manual_seed", ()) if isinstance(at.func, ast.Attribute))
    return [at for at in calls if name and ast.unparse(at.func.value) == name]  # type: ignore[attr-defined]


def is_of_pipeline(draw: ast.Call, file: File) -> bool:
    """Say whether a call is ``dataset.shuffle(1000)``, which gives another data set; a generator shuffles in place."""
    return tail_of(draw) == "shuffle" and not isinstance(next(file.parents(draw), None), ast.Expr)


def is_own_seed(maker: ast.Call, file: File) -> bool:
    """Say whether a generator has a seed that differs from process to process."""
    if not arguments(maker):  # np.random.default_rng(); of torch.Generator() all begin alike
        return tail_of(maker) in ("Random", "RandomState", "default_rng")
    return any(is_own(one, file) for one in arguments(maker))


def is_own(seed: ast.expr, file: File) -> bool:
    """Say whether a seed differs from process to process."""
    made = origins(seed, file)
    ways = (one for way in (seed, *passed(seed, file)) for one in reached(way, file))
    calls = (at for way in ways for at in walk(way) if isinstance(at, ast.Call))
    return ("group" not in made and bool(made & OWN)) or any(tail_of(at) in _SEEDLESS and not at.args for at in calls)


def is_seeded(draw: ast.Call, file: File) -> bool:
    """Whether the last seed above in the function, or else one of the file, is not this process' own."""
    seeds = [at for word, found in calls_of(file).items() if "seed" in word for at in found]
    function = function_of(draw, file)
    above = [at for at in seeds if at.lineno < draw.lineno and function_of(at, file) is function]
    last = [max(above, key=lambda at: at.lineno)] if above and function is not None else seeds
    return any(not any(origins(one, file) & OWN for one in arguments(at)) for at in last)
