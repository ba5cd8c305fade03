"""Whose random numbers a program draws alike on all processes: somebody seeds them, with a seed that is no rank's."""

from __future__ import annotations

import re

from allranks.check.summaries.project import Project
from allranks.check.summaries.render import render
from allranks.check.summaries.summary import Node, Summary, body_of, calls_below
from allranks.check.tables.names import documented

_FAMILIES = {"random.seed": "random", "numpy.random.seed": "numpy"}
_WHOLE = re.compile(
    r"^_?(seed_everything|set_?(all_?|global_?|random_?|rng_?)*seeds?|(setup|fix|init)_?(random_?|all_?)*seeds?|seed_all)$"
)
_OWN = re.compile(r"rank|process_index|process_id|host_id|getpid|time\(")


def dotted(function: Node, summary: Summary) -> str:
    """Return what a called expression is, as far as the imports of its file tell."""
    text = render(function)
    first, dot, rest = text.partition(".")
    meant = next((whole for whole, bound in summary.imports if bound == first), first)
    return documented(f"{meant}{dot}{rest}")


def seeded(project: Project) -> frozenset[str]:
    """Return the families (``random``, ``numpy``) that are seeded alike somewhere in a project."""
    found: set[str] = set()
    for summary in project.summaries.values():
        for facts in summary.functions.values():
            if any(word == "seed" or _WHOLE.search(word) for word in facts.words):
                found.update(
                    family for call in calls_below(body_of(facts)) for family in _seeds(call, summary, project)
                )
    return frozenset(found)


def _seeds(call: Node, summary: Summary, project: Project) -> tuple[str, ...]:
    name = dotted(call[1], summary)
    if any(_OWN.search(render(given)) for given in call[2]):
        return ()
    if name in _FAMILIES:
        return (_FAMILIES[name],)
    last = name.rpartition(".")[2]
    # one of the project is asked what it seeds; one of a package seeds all
    return tuple(_FAMILIES.values()) if _WHOLE.search(last) and not _is_ours(last, project) else ()


def _is_ours(name: str, project: Project) -> bool:
    return any(name in summary.functions for summary in project.summaries.values()) or bool(project.defined(name))
