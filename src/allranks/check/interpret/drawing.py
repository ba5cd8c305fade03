"""Processes that are seeded alike, and what they draw alike while they train: found in what a program's files say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from allranks.check.interpret.state import Result, Seen, Span
from allranks.check.interpret.values import CLOCK, IDENTITY, PROCESS, RANKS
from allranks.check.program import Event, Step
from allranks.check.summaries.project import Project
from allranks.check.summaries.render import render
from allranks.check.summaries.summary import FunctionFacts, Node, Summary, blocks, body_of, calls_below
from allranks.check.tables.names import documented
from allranks.check.tables.seeds import APART, DRAWN, GROUPED, LATENT, NORMAL, SEEDERS, TIMES, UNIFORM, WHOLE, WINDOWS
from allranks.findings import Place

_OWN = RANKS | CLOCK | PROCESS | IDENTITY
_STEPS = ("training_step", "train_step", "forward_step", "compute_loss")
_LOSSES = ("forward", "__call__")
_DRAWS = NORMAL | UNIFORM | WHOLE
_WORDS = frozenset(name.rpartition(".")[2] for name in _DRAWS)
_MOST = 3


def alike(
    project: Project, results: Iterable[Result], events: Iterable[Event], tell: Callable[[str, Span], Step]
) -> dict[Place, tuple[Step, ...]]:
    """Return where a program seeds all its processes alike, with what it draws for its own part of the batch later.

    One place for each program: the last one that all come to, of those where no seed is a process' own.
    """
    seeds = [e for e in events if e.name in SEEDERS and e.active and e.everyone]
    by_start: dict[str, list[Event]] = {}
    for event in seeds:
        by_start.setdefault(event.start.place.path, []).append(event)
    if not by_start:
        return {}
    own = {result.path for result in results if any(map(_is_own, result.seen))}
    reached = {start: project.reach(start) for start in by_start}
    optional = {path for path in set().union(*reached.values()) if _is_optional(project.summaries[path])}
    found: dict[Place, tuple[Step, ...]] = {}
    for start, events_there in by_start.items():
        paths = reached[start]
        if own.isdisjoint(paths) and optional.isdisjoint(paths):
            draws = tuple(tell(reference, span) for reference, span in _draws(project, paths))
            if draws:
                found[events_there[0].place] = draws[:_MOST]
    return found


def _is_own(seen: Seen) -> bool:
    """A seed that differs from process to process, or of which it is not known whether it does."""
    if seen.name not in SEEDERS:
        return False
    keywords = dict(seen.keywords)
    given = (*seen.arguments, *keywords.values())
    return not given or "device_specific" in keywords or any(value.taint & _OWN for value in given)


def _is_optional(summary: Summary) -> bool:
    """Whether ranks of a group are to draw alike, or the seed is an option that nobody has to give."""
    words = set[str]().union(*(facts.words for facts in summary.functions.values()))
    return any(map(GROUPED.search, words)) or any(
        any(map(_may_be_left_out, calls_below(body_of(facts))))
        for facts in summary.functions.values()
        if "add_argument" in facts.words
    )


def _may_be_left_out(call: Node) -> bool:
    """``add_argument("--seed", default=None)``"""
    _, function, arguments, keywords, _ = call
    if function[0] != "attr" or function[2] != "add_argument" or not arguments or arguments[0][0] != "const":
        return False
    option = str(arguments[0][1])
    default = next((value for key, value in keywords if key == "default"), ("const", None))
    return option.startswith("-") and option.strip("-").endswith("seed") and default == ("const", None)


def _draws(project: Project, paths: Iterable[str]) -> Iterator[tuple[str, Span]]:
    summaries = {path: project.summaries[path] for path in sorted(paths)}
    trains = _training([facts for summary in summaries.values() for facts in summary.functions.values()])
    for path, summary in summaries.items():
        if not summary.uses("torch"):
            continue
        for key, facts in summary.functions.items():
            if _WORDS.isdisjoint(facts.words) or facts.name == "<lambda>" or APART.search(facts.name):
                continue
            losses = facts.name in _LOSSES and any("loss" in word for word in facts.words)
            if facts.name in trains or losses or "backward" in facts.words:
                looped = "backward" in facts.words
                yield from ((f"{path}::{key}", span) for span in _drawn_in(summary, facts, looped=looped))


def _training(functions: Iterable[FunctionFacts]) -> set[str]:
    """Return the names that functions mention which make a step, and those that these mention."""
    first = [facts for facts in functions if "backward" in facts.words or facts.name in _STEPS]
    called = {word for facts in first for word in facts.words} | set(_STEPS)
    second = (facts for facts in functions if facts.name in called and facts.name not in _COMMON)
    return (called | {word for facts in second for word in facts.words}) - _COMMON


_COMMON = frozenset(["main", "run", "get", "step", "update", "forward", "call", "apply", "__init__", ""])


def _drawn_in(summary: Summary, facts: FunctionFacts, *, looped: bool) -> Iterator[Span]:
    """Yield what a function draws; if it has a loop of its own and makes steps, what it draws in a loop."""
    body = body_of(facts)
    statements = list(_statements(body, looped=False))
    in_loops = looped and any(statement[0] in ("for", "while") for statement, _ in statements)
    for statement, in_loop in statements:
        if statement[0] not in ("assign", "return", "expr") or (in_loops and not in_loop):
            continue
        names = [render(target) for target in statement[2]] if statement[0] == "assign" else [facts.name]
        if any(map(APART.search, names)):
            continue
        for call in _calls_with_lambdas(statement, summary):
            if _is_draw(call, summary, names):
                yield call[4]


def _is_draw(call: Node, summary: Summary, names: list[str]) -> bool:
    _, function, arguments, keywords, _ = call
    name = dotted(function, summary)
    if name not in _DRAWS or any(key == "generator" for key, _ in keywords):
        return False
    last = [n.rpartition(".")[2] for n in names]
    times = any(map(TIMES.search, last))
    if name in NORMAL:
        return times or any(map(DRAWN.search, last)) or any(LATENT.search(render(a)) for a in arguments)
    several = any(a[0] == "seq" and a[1] and a[1][0] != ("const", 1) for a in arguments) or any(
        key in ("size", "like") for key, _ in keywords
    )
    several = (
        several or name.endswith("_like") or (name in UNIFORM and bool(arguments) and arguments[0] != ("const", 1))
    )
    if name in UNIFORM:
        return times and several
    places = any("len(" in render(a) or ".size" in render(a) or ".shape" in render(a) for a in arguments[:2])
    return several and (times or (places and any(map(WINDOWS.search, last))))


def dotted(function: Node, summary: Summary) -> str:
    """Return what a called expression is, as far as the imports of its file tell."""
    text = render(function)
    first, dot, rest = text.partition(".")
    meant = next((whole for whole, bound in summary.imports if bound == first), first)
    return documented(f"{meant}{dot}{rest}")


def _calls_with_lambdas(node: object, summary: Summary) -> Iterator[Node]:
    for call in calls_below(node):
        yield call
        for given in (*call[2], *(value for _, value in call[3])):
            if given[0] == "fn" and given[1] in summary.functions:
                yield from calls_below(body_of(summary.functions[given[1]]))


def _statements(body: Iterable[Node], *, looped: bool) -> Iterator[tuple[Node, bool]]:
    """Yield all statements, and whether each stands in a loop."""
    for statement in body:
        yield statement, looped
        inside = looped or statement[0] in ("for", "while")
        for block in blocks(statement):
            yield from _statements(block, looped=inside)
