"""All rules, found by walking the package of rules."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from allranks.check import rules
from allranks.check.rule import LocalRule, MetaRule, ProgramRule, Rule

_KINDS = (Rule, LocalRule, ProgramRule, MetaRule)


@cache
def all_rules() -> tuple[Rule, ...]:
    """Return one instance of each rule, by code. Raises RuntimeError if two have the same code or name."""
    found: dict[str, Rule] = {}
    for module in pkgutil.iter_modules(rules.__path__):
        for item in vars(importlib.import_module(f"{rules.__name__}.{module.name}")).values():
            if isinstance(item, type) and issubclass(item, Rule) and item not in _KINDS:
                other = found.setdefault(item.code, item())
                if type(other) is not item or any(r.name == item.name and r.code != item.code for r in found.values()):
                    raise RuntimeError(f"two rules are called {item.code} or {item.name}: {type(other)} and {item}")
    return tuple(found[code] for code in sorted(found))


def rule(code: str) -> Rule | None:
    """Return the rule of a code or a name, None if there is none."""
    return next((r for r in all_rules() if code in (r.code, r.name)), None)


def selected(codes: tuple[str, ...], select: tuple[str, ...], ignore: tuple[str, ...]) -> frozenset[str]:
    """Return those of ``codes`` that ``select`` names and ``ignore`` does not: codes or prefixes; the longer one wins.

    ``ALL`` stands for every code.
    """

    def longest(prefixes: tuple[str, ...], code: str) -> int:
        fitting = [0 if p == "ALL" else len(p) for p in prefixes if p == "ALL" or code.startswith(p)]
        return max(fitting, default=-1)

    return frozenset(c for c in codes if longest(select, c) > longest(ignore, c))
