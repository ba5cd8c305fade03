"""The findings of the second engine, for those rules that are queries already: to be measured beside the first.

`engine.check` does not call it yet. When a rule here is as good as the first edition's, its file in ``rules`` takes the
query, and its part here goes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from allranks.check.analysis import Analysis, Root, Starts, analyse
from allranks.check.queries.effects import by_nodes, differs, holds_state, ungated
from allranks.check.registry import all_rules
from allranks.check.rule import Rule
from allranks.check.simulate.values import DIFFERS, FILES, IDENTITY, RANK, Made, options, taint
from allranks.check.sources.source import Unreadable, decode, parse, place, split
from allranks.check.survey.launches import Launches, on_several_nodes
from allranks.check.traces.compare import Divergence
from allranks.check.traces.nodes import Span
from allranks.check.traces.walk import Reach, Step
from allranks.findings import Confidence, Finding, Note, Place

_FORWARD = ("DDP forward", "FSDP forward", "engine forward")
_PARTED = {"rank": "AR201", "order": "AR211", "return": "AR202", "process": "AR203"}


def findings(sources: Mapping[str, bytes]) -> tuple[Finding, ...]:
    """Return what the second engine finds in the Python files ``sources`` (path from the project's root -> bytes)."""
    trees: dict[str, ast.Module] = {}
    texts: dict[str, str] = {}
    for path, raw in sources.items():
        text = decode(raw) if path.endswith(".py") else Unreadable("no Python")
        tree = parse(text) if isinstance(text, str) else text
        if isinstance(text, str) and not isinstance(tree, Unreadable):
            texts[path], trees[path] = text, tree
    launches = Launches(sources)
    starts = Starts(launches.together, launches.alone, nodes=on_several_nodes(sources))
    return _Findings(analyse(trees, texts, starts=starts), texts).every()


class _Findings:
    def __init__(self, analysis: Analysis, texts: Mapping[str, str]) -> None:
        self.analysis = analysis
        self._rules: Mapping[str, Rule] = {rule.code: rule for rule in all_rules()}
        self._lines = {path: split(text) for path, text in texts.items()}
        self._found: dict[tuple[str, str, Span], Finding] = {}

    def every(self) -> tuple[Finding, ...]:
        """Return all findings, each place once for each rule."""
        self._writes()
        for code, kind, does in (
            ("AR102", "publish", "uploads by"),
            ("AR103", "tracker", "calls"),
            ("AR106", "download", "downloads by"),
            ("AR108", "mkdir", "makes"),
            ("AR109", "delete", "deletes or moves"),
        ):
            for root, reach in ungated(self.analysis, kind):
                self._effect(code, root, reach, f"every rank {does} {reach.call.target or reach.call.name}")
        self._nodes()
        for root, reach in self.analysis.reached("mkdir", "folder", "checkpoint", "file", "tracker"):
            own = taint(reach.call.where) & (RANK | IDENTITY)
            if root.is_shared(reach) and reach.everyone and differs(reach) and not own and not root.finds_done(reach):
                self._effect("AR107", root, reach, f"each rank chooses {reach.call.target} for itself")
        for root in self.analysis.roots:
            for parted in root.parted if root.active else ():
                self._divergence(parted)
        return tuple(sorted(self._found.values(), key=lambda finding: (finding.place, finding.code)))

    def _writes(self) -> None:
        """Find checkpoints and other files that every rank writes: one finding a file, where it is opened."""
        checkpoints = list(ungated(self.analysis, "checkpoint"))
        files = list(ungated(self.analysis, "file", "append"))
        opened = {handle for _, reach in checkpoints if (handle := _handle(reach)) is not None}
        inside: dict[tuple[str, int], list[Reach]] = {}
        for _, reach in files:
            if (handle := _handle(reach)) is not None:
                inside.setdefault(handle, []).append(reach)
        for root, reach in checkpoints:
            self._effect("AR101", root, reach, f"every rank writes the checkpoint {reach.call.target}")
        for root, reach in ungated(self.analysis, "moved"):
            if holds_state(self.analysis, reach):
                self._effect("AR101", root, reach, f"every rank writes the checkpoint {reach.call.target}")
        for root, reach in files:
            at = (reach.call.path, reach.call.span[0])
            if at in opened or _handle(reach) is not None:
                continue
            state = any(holds_state(self.analysis, one) for one in (reach, *inside.get(at, ())))
            what = (
                f"every rank writes {'the checkpoint' if state else 'the file'} {reach.call.target or reach.call.name}"
            )
            low = reach.call.kind == "append" and not state
            self._effect("AR101" if state else "AR102", root, reach, what, low=low)

    def _nodes(self) -> None:
        kinds = ("checkpoint", "file", "append", "delete", "tracker", "download", "moved")
        for root, reach in by_nodes(self.analysis, *kinds):
            if _handle(reach) is None:
                what = f"the first process of each node works on {reach.call.target or reach.call.name}"
                self._effect("AR105", root, reach, what, low=not self.analysis.starts.nodes)

    def _effect(self, code: str, root: Root, reach: Reach, message: str, *, low: bool = False) -> None:
        call = reach.call
        low = low or self.analysis.is_run_once(reach)
        confidence: Confidence = "high" if root.sure and not low else "low"
        made = self._made(code, (call.path, call.span), call.symbol, message, self._way(reach.chain))
        self._add(made, call.span, confidence)

    def _divergence(self, parted: Divergence) -> None:
        code = _PARTED.get(parted.cause)
        if code is None:
            return
        if code == "AR203" and parted.leaves:
            code = "AR209"
        elif parted.call.entry.op in _FORWARD:
            code = "AR204"
        text = getattr(parted.branch, "text", "")
        message = f"{parted.call.name} is not reached by every rank: it depends on {text}"
        guard = Note("the ranks diverge here", self._place(parted.path, parted.branch.span))
        there = Note("it is called here", self._place(parted.call.path, parted.call.span))
        notes = (*self._way(parted.chain), guard, there)
        # Where files are only read, all ranks find the same, unless a disk is not shared.
        reads = parted.cause == "process" and not parted.taint & DIFFERS & ~(RANK | FILES) and not parted.changes
        made = self._made(code, (parted.path, parted.at), parted.symbol, message, notes)
        self._add(made, parted.at, "low" if reads else "high")

    def _made(self, code: str, at: tuple[str, Span], symbol: str, message: str, notes: Iterable[Note]) -> Finding:
        return self._rules[code].finding(self._place(*at), symbol, message, notes=notes)

    def _add(self, finding: Finding, span: Span, confidence: Confidence) -> None:
        key = (finding.code, finding.place.path, span)
        if key not in self._found or (self._found[key].confidence == "low" and confidence == "high"):
            self._found[key] = replace(finding, confidence=confidence)

    def _place(self, path: str, span: Span) -> Place:
        return place(path, self._lines[path], span)

    def _way(self, chain: Iterable[Step]) -> tuple[Note, ...]:
        return tuple(Note(f"called in {symbol}", self._place(path, span)) for symbol, path, span in chain)


def _handle(reach: Reach) -> tuple[str, int] | None:
    """Return where the file was opened that is written to; None if it is written by its name."""
    for value in options(reach.call.where) if reach.call.where is not None else ():
        if isinstance(value, Made) and value.cls == "file":
            return value.path, value.line
    return None


def codes() -> Iterator[str]:
    """Yield the codes of the rules that are queries already."""
    yield from ("AR101", "AR102", "AR103", "AR105", "AR106", "AR107", "AR108", "AR109", "AR204", "AR209")
    yield from _PARTED.values()
