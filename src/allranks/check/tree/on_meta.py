"""Where FSDP is given a model of the meta device, which has shapes and no numbers, and fills it on every rank apart."""

from __future__ import annotations

import ast

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import RANK_KINDS, origins, values
from allranks.check.tree.syntax import asks_rank, function_of, has_stars, inside, is_constant, keyword, own, tail_of

_SYNC = "sync_module_states"
# What brings rank 0's weights to the others behind the wrapper, whatever it is called by.
_SENT_LATER = ("broadcast", "load_state_dict", "set_model_state_dict")
SEEDED = "FSDP initialises this model under a seed that depends on the rank"
ONE_HOLDS = "only one rank holds this model's parameters, and FSDP is not set to send them to the others"
TO_SYNC = "Pass sync_module_states=True, so that FSDP sends rank 0's parameters to the others."


def filled_apart(wraps: ast.Call, file: File) -> str | None:
    """Return what is wrong with an FSDP's model that begins on the meta device, if each rank fills its own."""
    told = keyword(wraps, _SYNC)
    if "meta" not in file.text and "to_empty" not in file.text:
        return None
    if has_stars(wraps) or not (told is None or is_constant(told, False)):
        return None
    if _SYNC not in file.text and _seeded_by_rank(wraps, file):
        return SEEDED
    one_holds = _fills_by_rank(wraps, file) or _made_by_rank(wraps, file)
    return ONE_HOLDS if one_holds and not any(word in file.text for word in _SENT_LATER) else None


def _seeded_by_rank(wraps: ast.Call, file: File) -> bool:
    """Parameters are made here, and the last seed above holds the rank."""
    function = function_of(wraps, file)
    if function is None:
        return False
    seeds = [n for n in own(function) if isinstance(n, ast.Call) and "seed" in tail_of(n) and n.lineno < wraps.lineno]
    last = max(seeds, key=lambda n: n.lineno, default=None)
    given_ones = (*last.args, *(k.value for k in last.keywords)) if last is not None else ()
    return any(origins(a, file) & RANK_KINDS for a in given_ones)


def _fills_by_rank(wraps: ast.Call, file: File) -> bool:
    """``param_init_fn=to_empty if rank != 0 else None``"""
    fills = keyword(wraps, "param_init_fn")
    choices = [fills, *values(fills, file)] if fills is not None else []
    return any(isinstance(one, ast.IfExp) and asks_rank(one.test) and _leaves_empty(one) for one in choices)


def _leaves_empty(node: ast.AST) -> bool:
    return any(isinstance(at, ast.Attribute | ast.Name) and tail_of(at) == "to_empty" for at in walk(node))


def _made_by_rank(wraps: ast.Call, file: File) -> bool:
    """One arm of a condition on the rank makes the model, and the other one makes it on the meta device."""
    made = values(wraps.args[0], file) if wraps.args else []
    return any(_on_meta(one, file) and _by_rank(one, file) for one in made) and not all(_on_meta(o, file) for o in made)


def _on_meta(made: ast.AST, file: File) -> bool:
    contexts = [item.context_expr for at, _ in inside(made, file) if isinstance(at, ast.With) for item in at.items]
    named = (at.value for context in contexts for at in walk(context) if isinstance(at, ast.Constant))
    return "meta" in named


def _by_rank(made: ast.AST, file: File) -> bool:
    return any(isinstance(at, ast.If) and asks_rank(at.test) for at, _ in inside(made, file))
