"""AR502: load_state_dict(strict=False), and nobody looks at what was not loaded."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.rule import Example, LocalRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.syntax import function_of, given, inside, is_constant, own, speaks_of, tail_of
from allranks.findings import Edit, Finding, Fix, Place

# Weights that are a part by nature.
_PARTS = re.compile(r"lora|adapter|peft|prompt|head|embed|vae|vision|tower|encoder|backbone|pretrain|teacher", re.I)
_TOLD = ("print", "info", "warning", "warn", "debug", "log", "print_rank_0", "rank_zero_info")


class PartialLoadUnchecked(LocalRule):
    """
    ## What it does
    Finds `load_state_dict(state, strict=False)` whose result is ignored, or only printed.

    ## Why is this bad
    With a wrong prefix (`module.`, `model.`) nothing is loaded, without an error. The result lists the missing keys,
    and the program ignores it.

    ## What happens with N processes
    All ranks start with random weights and agree with each other. Only the first loss shows it.

    ## Known problems
    Weights that are partial on purpose (adapters, a new head) are loaded like this. The rule is off until it is
    selected.

    ## Use instead
    `missing, unexpected = load_state_dict(...)`, and stop if either holds more than what you expect.

    ## Fix safety
    Unsafe: the program may rely on missing keys.
    """

    code, name, severity, row = "AR502", "partial-load-unchecked", "warning", "checkpoint load"
    default = False
    cluster = "A wrong prefix loads nothing, without an error, on every rank."
    advice = "Check missing_keys and unexpected_keys of the result, and stop if there are any that you do not expect."
    words = ("strict",)
    nodes = (ast.Expr, ast.Assign)
    bad = (
        Example({"train.py": "model.load_state_dict(checkpoint['state_dict'], strict=False)\n"}, at=(1,)),
        Example(
            {
                "model.py": """\
class Module:
    def setup(self, stage):
        result = self.load_state_dict(read(), strict=False)
        print("missing", result.missing_keys)
        print("loaded in all ranks")
"""
            },
            at=(3,),
        ),
    )
    good = (
        Example({"train.py": "model.load_state_dict(checkpoint)\nlora.load_state_dict(a, strict=False)\n"}),
        Example(
            {
                "train.py": """\
def load(model, state):
    missing, unexpected = model.load_state_dict(state, strict=False)
    if missing or unexpected:
        raise ValueError(missing)
"""
            }
        ),
        Example(
            {
                "train.py": """\
def load(model, state):
    result = model.load_state_dict(state, strict=False)
    assert not result.unexpected_keys
"""
            }
        ),
        Example({"train.py": "def load(model, state):\n    return model.load_state_dict(state, strict=False)\n"}),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        call = node.value if isinstance(node, ast.Expr | ast.Assign) else None
        if not isinstance(call, ast.Call) or tail_of(call) != "load_state_dict":
            return
        if not is_constant(given(call, 1, "strict"), False) or speaks_of(call, _PARTS):
            return
        if isinstance(node, ast.Assign) and _is_looked_at(node, file):
            return
        whole = file.place(call)
        fix = None
        if isinstance(node, ast.Expr):
            fix = Fix("take the result", (Edit(_before(whole), "loaded = "),), safe=False)
        yield self.local(
            file, node, "load_state_dict(strict=False), and nothing checks which keys were not loaded", fix=fix
        )


def _before(place: Place) -> Place:
    return Place(place.path, place.line, place.column, place.line, place.column)


def _is_looked_at(assign: ast.Assign, file: File) -> bool:
    """A name that the result is given to stands in a condition, or is passed on other than to print."""
    names = {at.id for target in assign.targets for at in walk(target) if isinstance(at, ast.Name)}
    scope = function_of(assign, file) or file.tree
    for at in own(scope):
        if isinstance(at, ast.Name) and at.id in names and isinstance(at.ctx, ast.Load) and not _is_printed(at, file):
            return True
    return False


def _is_printed(name: ast.Name, file: File) -> bool:
    for parent, _ in inside(name, file):
        if isinstance(parent, ast.If | ast.While | ast.Assert):
            return False
        if isinstance(parent, ast.Call) and tail_of(parent) in _TOLD:
            return True
        if isinstance(parent, ast.stmt):
            return False
    return False
