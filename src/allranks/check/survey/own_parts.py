"""Which functions give what they make of this process' part of held-out data, as far as all files of a program tell."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from allranks.check.sources.source import is_test, module_name
from allranks.check.summaries.project import Project, closed
from allranks.check.summaries.render import render
from allranks.check.summaries.summary import FunctionFacts, Summary, body_of, nodes_in
from allranks.check.survey.joining import alone

# Held-out data that a sampler deals out, as it is written.
_DEALS = re.compile(
    r"(?i)(?<![a-z])(val|valid|validation|eval|test|dev)\w*\s*=\s*[\w.]*Distributed\w*Sampler\("
    r"|Distributed\w*Sampler\(\s*(dataset\s*=\s*)?[\w.\[\]\"']*(?<![a-z])(val|eval|test|dev)"
)
# A sampler that keeps the order of what it deals out: nobody trains so, but who says so; that keeps it where nobody
# trains; and loaders that a library splits by rank.
_IN_ORDER = re.compile(
    r"Distributed\w*Sampler\((?:[^()]|\([^()]*\))*?\bshuffle\s*=\s*\(?"
    r"(False\b(?!\s*,?\s*\)\s*if\s[^\n]*(?<!not )\b(is_)?train(ing)?\b)"
    r"|(is_)?train(ing)?\b(?!\.)|(not\s+)?(is_)?(val|eval|test)\w*\b"
    r"|(\w+\.)*(split|mode|phase|stage|partition|subset)\s*==)"
)
_PREPARES = re.compile(
    r"(?i)(?<![a-z])(val|valid|validation|eval|test|dev)\w*(,\s*\w+)*\s*=\s*\(?[\w.]*\.(prepare|setup_dataloaders)\("
)
_STRIDES = re.compile(r"(?i)\[\s*[\w.]*rank\w*(\(\))?\s*::|range\(\s*[\w.]*rank\w*(\(\))?,")
_HELD_OUT = re.compile(r"(?i)(?<![a-z])(val|valid|validation|eval|test|dev|held)(?![a-z])")
_SAMPLER = re.compile(r"Distributed\w*Sampler$")
_CHOOSES = re.compile(r"(?i)train|phase|mode|split|stage|shuffle")
_ASKED_FOR = re.compile(r"(?i)sampler|distribut|ddp")  # parameters without which a function deals nothing out
_LOADER = re.compile(r"(?i)^(val|valid|validation|eval|test|dev)_?(data)?_?(loader|dl|iter)")
_MEETS = re.compile(
    r"(?i)all_?reduce|all_?gather|gather_object|gather_for|gather_all|reduce_(tensor|dict|mean|sum|loss|value|metric|scalar)"
    r"|(loss|tensor|metric|value|scalar)s?_reduce|^reduce$|^gather$|broadcast(?!_(param|optimizer|model|weight|variable|buffer|seed|state))|psum|pmean|synchronize_between|sync_and_compute"
    r"|average_across|metric_average|torchmetrics|dist_?(mean|sum|concat)|distributed_(concat|mean|sum)"
)
# What joins the processes of torch by itself, and what may do so, or start a program of several.
_JOINS = "init_process_group"
_STARTS = re.compile(r"init_process|init_dist|setup_dist|spawn|launch|^(Accelerator|Fabric|Trainer|LightningCLI)$")
# Of these packages `init` or `initialize` does; others have functions of that name too (`torch.nn.init`).
_BEGIN = frozenset({"init", "initialize"})
_BEGUN_BY = ("horovod", "deepspeed", "jax", "colossalai", "bmtrain", "oneflow", "byteps", "smdistributed", "megatron")
_SEVERAL = re.compile(r"rank\w* (!= -1|> -1|>= 0)$|world_size > 1$|distributed$")
_PLAIN = re.compile(r"^object$|^(abc\.)?ABC$|^([\w.]+\.)?(EvalMetric|Module)$")  # bases that meet nobody
_COMMON = frozenset({"forward", "__call__", "__init__", "main", "train", "fit", "run", "step", "update", "log", "get"})


def own_parts(project: Project, lines: Mapping[str, list[str]]) -> frozenset[str]:
    """Return the functions of programs that deal out held-out data, by their full name, that neither meet the other
    processes, nor what they call, nor who calls them."""
    files = {path: summary for path, summary in project.summaries.items() if not is_test(path)}
    dealing = {path for path in files if _deals(project, path, lines)}
    if not dealing:
        return frozenset()
    makers = _makers(project, dealing)
    calling = (path for path in files if _calls(files[path], makers) and not dealing.isdisjoint(project.reach(path)))
    users = closed(
        dealing.union(calling),
        lambda path: [user for user in project.importers(path) if not path.endswith("__init__.py")],
    )
    around = (closed(users, project.imported) & files.keys()) - alone(project)
    every = [(path, key, facts) for path in around for key, facts in files[path].functions.items()]
    functions = [one for one in every if one[1]]  # not the bodies of modules
    meeting = _meeting([facts for _, _, facts in functions])
    said = [frozenset(facts.words if key else _names_in(facts)) for _, key, facts in every]
    told = {word for words in said if any(map(_MEETS.search, words)) for word in words}
    told |= {word for _, _, facts in functions if _refuses(facts) for word in facts.words}
    apart = _apart(_single(project, files), files)
    return frozenset(
        f"{module_name(path)}.{key}"
        for path, key, facts in functions
        if facts.name not in told
        and meeting.isdisjoint((facts.name, *facts.words))
        and facts.name not in apart
        and path not in apart
    )


def _apart(single: frozenset[str], files: Mapping[str, Summary]) -> set[str]:
    """Return these programs of one process, and the names that they alone speak of."""
    said: dict[str, set[str]] = {}
    for path, one in files.items() if single else ():
        for key, facts in one.functions.items():
            for word in (*facts.words, *_names_in(facts)) if key else _names_in(facts):
                said.setdefault(word, set()).add(path)
    return {*single, *(word for word, by in said.items() if by <= single)}


def _single(project: Project, files: Mapping[str, Summary]) -> frozenset[str]:
    """Return the programs that join no processes, nor what they import, in a project of which another one does."""
    joining = {path for path, one in files.items() if any(_JOINS in facts.words for facts in one.functions.values())}
    programs = (path for path, one in files.items() if "__name__" in one.functions[""].words and path not in joining)
    found = {path for path in programs if joining and not _may_join(project, path, files)}
    return frozenset(path for path in found if not any(user != path for user in project.importers(path)))


def _may_join(project: Project, path: str, files: Mapping[str, Summary]) -> bool:
    reached = [files[one] for one in project.reach(path) & files.keys()]
    words = frozenset().union(*(facts.words for one in reached for facts in one.functions.values()))
    begun = not _BEGIN.isdisjoint(words) and any(one.uses(package) for one in reached for package in _BEGUN_BY)
    return begun or any(map(_STARTS.search, words))


def meeting_functions(project: Project) -> frozenset[str]:
    """Return the names of functions that meet the other processes."""
    functions = (facts for summary in project.summaries.values() for facts in summary.functions.values())
    meeting = frozenset(one.name for one in functions if any(map(_MEETS.search, one.words)))
    return meeting - _COMMON - {""}


def _deals(project: Project, path: str, lines: Mapping[str, list[str]]) -> bool:
    facts = list(project.summaries[path].functions.values())
    text = "\n".join(lines[path])
    dealing = [one for one in facts if any(map(_SAMPLER.search, one.words))]
    if dealing and (_DEALS.search(text) or _IN_ORDER.search(text) or any(_deals_all(one, project) for one in dealing)):
        return True
    return bool(_PREPARES.search(text)) or any(
        _STRIDES.search(line) and _HELD_OUT.search(line.replace("_", " ")) for line in lines[path]
    )


def _refuses(facts: FunctionFacts) -> bool:
    """Whether a function raises where there are several processes."""
    tops = (node for node in body_of(facts) if node[0] == "if" and node[3] and node[3][0][0] == "raise")
    return any(_SEVERAL.search(render(node[2])) for node in tops)


def _makers(project: Project, dealing: Iterable[str]) -> frozenset[str]:
    """Return what the functions are called by that deal out, of whatever package they are imported."""
    functions = (facts for path in dealing for facts in project.summaries[path].functions.values())
    return frozenset(_called(one) for one in functions if any(map(_SAMPLER.search, one.words))) - _COMMON - {""}


def _calls(summary: Summary, names: frozenset[str]) -> bool:
    return any(not names.isdisjoint(facts.words) for facts in summary.functions.values())


def _called(facts: FunctionFacts) -> str:
    """Return what a function is called by: a method that makes an object, by its class."""
    return facts.owner.rpartition(".")[2] if facts.name == "__init__" else facts.name


def _deals_all(facts: FunctionFacts, project: Project, depth: int = 1) -> bool:
    """Whether a function deals out whatever data it is given, and those who call it, or who call these, speak of
    held-out loaders."""
    name = _called(facts)
    if not name or not facts.positional or _CHOOSES.search(name) or any(map(_CHOOSES.search, _conditions(facts))):
        return False
    if any(_ASKED_FOR.search(parameter) for parameter, _ in facts.defaults):
        return False
    callers = list(_callers(name, project))
    if any(any(map(_LOADER.search, one.words)) for one in callers):
        return True
    return depth > 0 and any(_deals_all(one, project, depth - 1) for one in callers if one.name not in _COMMON)


def _names_in(facts: FunctionFacts) -> Iterator[str]:
    """Yield the names in the body of a module, not those in its functions."""
    for node in nodes_in(body_of(facts), without=("import", "def", "class")):
        place = {"name": 1, "attr": 2}.get(node[0]) if len(node) > 1 else None
        if place is not None and len(node) > place and isinstance(node[place], str):
            yield node[place]


def _conditions(facts: FunctionFacts) -> Iterator[str]:
    """Yield the conditions of a function, as text."""
    for node in nodes_in(body_of(facts)):
        if node[:1] == ("if",) and len(node) > 3 and isinstance(node[1], int):
            yield render(node[2])
        elif node[:1] == ("ifexp",) and len(node) > 3:
            yield render(node[1])


def _callers(name: str, project: Project) -> Iterator[FunctionFacts]:
    functions = (facts for summary in project.summaries.values() for facts in summary.functions.values())
    return (facts for facts in functions if name in facts.words and facts.name != name)


def meeting_kinds(project: Project) -> frozenset[str]:
    """Return the names of classes of which a method meets the other processes, or whose kin of elsewhere may."""
    found = set[str]()
    for summary in project.summaries.values():
        facts = summary.functions.values()
        found |= {one.owner.rpartition(".")[2] for one in facts if one.owner and any(map(_MEETS.search, one.words))}
        for kind in summary.classes.values():
            if any(not _PLAIN.search(render(base)) for base in kind.bases):
                found.add(kind.name)
    return frozenset(found)


def _meeting(functions: list[FunctionFacts]) -> set[str]:
    """Return the names of functions that meet the other processes, and the words that say so."""
    meeting = [facts for facts in functions if any(map(_MEETS.search, facts.words))]
    words = {word for facts in meeting for word in facts.words if _MEETS.search(word)}
    return {facts.name for facts in meeting} - _COMMON | words
