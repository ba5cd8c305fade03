"""Where processes part, over all that the entries lead to, as rules see it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping

from allranks.check.interpret.state import Result, Span
from allranks.check.program import Divergence, Step
from allranks.check.sources.source import module_name
from allranks.check.summaries.project import Project
from allranks.check.summaries.render import render
from allranks.check.survey.trace import Comparison, Parting
from allranks.findings import Place

_CALLED = re.compile(r"[\w.]+(?=\()")
_CONTEXT = ("__enter__", "__exit__")


def symbol(reference: str) -> str:
    """Return a function as it is told of."""
    path, _, key = reference.partition("::")
    return f"{module_name(path)}.{key}" if key else module_name(path)


class Parted:
    """Collects where processes part. ``inside``: functions that show, with what they call, that there are several
    processes; ``place``: the place of a stretch of a file; ``lines``: of each file."""

    def __init__(
        self,
        project: Project,
        inside: Collection[str],
        place: Callable[[str, Span], Place],
        lines: Mapping[str, list[str]],
    ) -> None:
        self._project = project
        self._inside = inside
        self._place = place
        self._lines = lines
        self._comparison = Comparison()
        self._compared: set[tuple[int, int, bool]] = set()
        self._partings: dict[tuple[str, Span, str], Divergence] = {}

    def found(self) -> tuple[Divergence, ...]:
        """Return what was found, in order of place."""
        return tuple(sorted(self._partings.values(), key=lambda parting: parting.place))

    def come_in(self, entries: Collection[Result]) -> Iterator[Result]:
        """Yield the entries without contexts in which those wait at the end who did not wait at the beginning."""
        met = {entry.reference: entry for entry in entries if entry.meets}
        for entry in entries:
            owner, _, name = entry.reference.rpartition(".")
            pair = [it for end in _CONTEXT if (it := met.get(f"{owner}.{end}")) is not None]
            if name not in _CONTEXT or len(pair) < 2 or not self._comparison.even(pair):
                yield entry

    def go_down(self, result: Result, alive: int, active: bool, chain: tuple[Step, ...]) -> None:
        """Look where the ``alive`` roles part in a function and in what it calls."""
        if self._plays_parts(result.path):
            return
        # a branch on the rank is evidence enough
        active = active or bool(result.evidence) or result.reference in self._inside
        key = (id(result), alive, active)
        if key in self._compared or not alive or not result.meets or len(chain) > 30:
            return
        self._compared.add(key)
        for found in self._comparison.partings(result, alive):
            if isinstance(found, Parting):
                if active or found.cause != "process":
                    self._parting(found, chain)
            else:
                called, roles = found
                step = Step(symbol(result.reference), self._place(result.path, called.span))
                self.go_down(called.result, roles, active, (*chain, step))

    def _plays_parts(self, path: str) -> bool:
        """Processes that call each other over RPC are different programs on purpose."""
        return any(dotted.startswith("torch.distributed.rpc") for dotted, _ in self._project.summaries[path].imports)

    def _parting(self, found: Parting, chain: tuple[Step, ...]) -> None:
        reference, guard, meeting, way = found.result.reference, found.guard, found.meeting.span, found.meeting.way
        decorator = self._decorator(found, way[0][0]) if way else None
        stands_for = found.result.gated
        while way and (stands_for or self._decorates(found.result.reference, way[0][0])):
            stands_for = False
            (reference, meeting), *rest = way
            way = tuple(rest)
        site = (found.result.path, guard, "" if reference == found.result.reference else reference)
        if site in self._partings:
            return
        place = self._place(reference.partition("::")[0], meeting)
        inside = (self._place(called.partition("::")[0], span) for called, span in way)
        self._partings[site] = Divergence(
            cause=found.cause,
            place=place,
            symbol=symbol(reference),
            collective=found.meeting.name,
            op=found.meeting.op,
            guard=decorator or self._place(found.result.path, guard),
            condition=found.condition,
            traces=found.sides,
            active=True,
            chain=chain,
            inside=tuple(inside),
            under=found.under,
            answered=found.answered,
            written=self._written(place),
        )

    def _written(self, place: Place) -> str:
        """Return what is called at a place, as it stands there; empty where that is more than a name."""
        lines = self._lines.get(place.path, [])
        called = _CALLED.match(lines[place.line - 1], place.column - 1) if place.line <= len(lines) else None
        return called[0] if called is not None else ""

    def _decorator(self, found: Parting, called: str) -> Place | None:
        """Return where the decorator stands that only some ranks pass, of the function that is called."""
        facts = self._project.function(called)
        if facts is None:
            return None
        stands = (
            at
            for node, at in zip(facts.decorators, facts.decorated, strict=True)
            if f"@{render(node)}" == found.condition
        )
        span = next(stands, None)
        return self._place(called.partition("::")[0], span) if span else None

    def _decorates(self, wrapper: str, called: str) -> bool:
        """Whether a function is what a decorator makes of the one that it calls."""
        facts = self._project.function(called)
        decorators = facts.decorators if facts is not None else ()
        names = {render(d[1] if d[0] == "call" else d).rpartition(".")[2] for d in decorators}
        return not names.isdisjoint(wrapper.partition("::")[2].replace("<", "").split(".")[:-1])
