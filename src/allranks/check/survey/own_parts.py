"""Which functions give what they make of this process' part of held-out data, as far as all files of a program tell."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from allranks.check.sources.source import is_test, module_name
from allranks.check.summaries.project import Project, closed
from allranks.check.summaries.summary import FunctionFacts

# Held-out data that a sampler deals out, as it is written.
_DEALS = re.compile(
    r"(?i)(?<![a-z])(val|valid|validation|eval|test|dev)\w*\s*=\s*[\w.]*Distributed\w*Sampler\("
    r"|Distributed\w*Sampler\(\s*(dataset\s*=\s*)?[\w.\[\]\"']*(?<![a-z])(val|eval|test|dev)"
)
_STRIDES = re.compile(r"(?i)\[\s*[\w.]*rank\w*(\(\))?\s*::|range\(\s*[\w.]*rank\w*(\(\))?,")
_HELD_OUT = re.compile(r"(?i)(?<![a-z])(val|valid|validation|eval|test|dev|held)(?![a-z])")
_SAMPLER = re.compile(r"Distributed\w*Sampler$")
_CHOOSES = re.compile(r"(?i)train|phase|mode|split|stage|shuffle")
_LOADER = re.compile(r"(?i)^(val|valid|validation|eval|test|dev)_?(data)?_?(loader|dl|iter)")
_MEETS = re.compile(
    r"(?i)all_?reduce|all_?gather|gather_object|gather_for|gather_all|reduce_(tensor|dict|mean|sum|loss|value|metric|scalar)"
    r"|(loss|tensor|metric|value|scalar)s?_reduce|^reduce$|^gather$|broadcast|psum|pmean|synchronize_between|sync_and_compute"
    r"|average_across|metric_average|torchmetrics|dist_?(mean|sum|concat)|distributed_(concat|mean|sum)"
)
_COMMON = frozenset({"forward", "__call__", "__init__", "main", "train", "fit", "run", "step", "update", "log", "get"})


def own_parts(project: Project, lines: Mapping[str, list[str]]) -> frozenset[str]:
    """Return the functions of programs that deal out held-out data, by their full name, that neither meet the other
    processes, nor what they call, nor who calls them."""
    files = {path: summary for path, summary in project.summaries.items() if not is_test(path)}
    dealing = {path for path in files if _deals(project, path, lines)}
    if not dealing:
        return frozenset()
    users = closed(dealing, lambda path: [user for user in project.importers(path) if not path.endswith("__init__.py")])
    around = closed(users, project.imported) & files.keys()
    every = [(path, key, facts) for path in around for key, facts in files[path].functions.items()]
    functions = [one for one in every if one[1]]  # not the bodies of modules
    meeting = _meeting([facts for _, _, facts in functions])
    told = {word for _, _, facts in every if any(map(_MEETS.search, facts.words)) for word in facts.words}
    return frozenset(
        f"{module_name(path)}.{key}"
        for path, key, facts in functions
        if facts.name not in told and meeting.isdisjoint((facts.name, *facts.words))
    )


def _deals(project: Project, path: str, lines: Mapping[str, list[str]]) -> bool:
    facts = list(project.summaries[path].functions.values())
    text = "\n".join(lines[path])
    dealing = [one for one in facts if any(map(_SAMPLER.search, one.words))]
    if dealing and (_DEALS.search(text) or any(_deals_all(one, project) for one in dealing)):
        return True
    return any(_STRIDES.search(line) and _HELD_OUT.search(line.replace("_", " ")) for line in lines[path])


def _deals_all(facts: FunctionFacts, project: Project) -> bool:
    """Whether a function deals out whatever data it is given, and those who call it speak of held-out loaders."""
    if not facts.name or not facts.positional or any(map(_CHOOSES.search, (facts.name, *facts.words))):
        return False
    return any(any(map(_LOADER.search, one.words)) for one in _callers(facts.name, project))


def _callers(name: str, project: Project) -> Iterator[FunctionFacts]:
    functions = (facts for summary in project.summaries.values() for facts in summary.functions.values())
    return (facts for facts in functions if name in facts.words and facts.name != name)


def _meeting(functions: list[FunctionFacts]) -> set[str]:
    """Return the names of functions that meet the other processes, and the words that say so."""
    meeting = [facts for facts in functions if any(map(_MEETS.search, facts.words))]
    words = {word for facts in meeting for word in facts.words if _MEETS.search(word)}
    return {facts.name for facts in meeting} - _COMMON | words
