"""What a method changes of its object, whichever file its class stands in. Pure."""

from __future__ import annotations

import re

from allranks.check.summaries.project import Project
from allranks.check.summaries.render import render
from allranks.check.summaries.summary import FunctionFacts

_SENDS = re.compile(r"(?i)broadcast|bcast|reduce|gather|sync|scatter")


def alters(project: Project, kind: str, method: str, asked: str) -> bool:
    """Whether ``method`` of the one class that is called ``kind`` changes what ``asked``, an attribute or a method of
    it, gives, and neither of the two tells other processes of anything."""
    methods = _methods(project, kind)
    told, gives = _with_those_called(methods, method), _with_those_called(methods, asked)
    if any(_SENDS.search(word) for facts in (*told, *gives) for word in facts.words):
        return False
    changed = {name for facts in told for name in facts.stored}
    if not gives:
        return asked in changed
    return all(not facts.stored for facts in gives) and any(not changed.isdisjoint(facts.words) for facts in gives)


def _methods(project: Project, kind: str) -> dict[str, FunctionFacts]:
    """Return the methods of a class, those of its bases first; none if there are several of its name."""
    named = [(path, s.classes[kind]) for path, s in project.summaries.items() if kind in s.classes]
    if len(named) != 1:
        return {}
    (path, facts) = named[0]
    found: dict[str, FunctionFacts] = {}
    for base in facts.bases:
        name = render(base).rpartition(".")[2]
        found |= _methods(project, name) if name != kind else {}
    return found | {name: project.summaries[path].functions[key] for name, key in facts.methods}


def _with_those_called(methods: dict[str, FunctionFacts], first: str) -> list[FunctionFacts]:
    """Return a method, and the others of its class that it names."""
    found, waiting = dict[str, FunctionFacts](), [first]
    while waiting:
        name = waiting.pop()
        if name in methods and name not in found:
            found[name] = methods[name]
            waiting += methods[name].words
    return list(found.values())
