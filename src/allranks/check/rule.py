"""What a rule is, and how to write one.

A rule is one file, ``rules/ar101_ungated_checkpoint_write.py``, with one class in it. The class says what the fault is
(code, name, severity, row of the readiness report), documents it (the docstring is its page, with the sections *What it
does*, *Why is this bad*, *What happens with N processes*, *Known problems*, *Use instead*, *Fix safety*), and carries
``bad`` and ``good`` examples, which are its tests and stand on its page. Nothing registers it: `registry` walks the
package.

**A LocalRule** looks at one file, on the ``ast``::

    class SleepAsBarrier(LocalRule):
        '''...the page...'''
        code, name, severity, row = "AR803", "sleep-as-barrier", "warning", "collectives"
        cluster = "The slowest rank is still writing when the others wake up."
        advice = "Wait with a barrier, or let rank 0 tell the others with a broadcast."
        words = ("sleep",)            # the rule is asked only about files whose text holds one of these
        nodes = (ast.Call,)           # and only about these nodes, which are looked up once for all rules
        calls = ("time.sleep",)       # of calls only about those with the same last part, as written or as documented
                                      # (`applies` may leave a file out by more than its words)
        bad = ("...",)                # programs, as `Example.of` reads them
        good = ("...",)

        def visit(self, node, file):
            if file.qualified(node.func) == "time.sleep":
                yield self.local(file, node, "a sleep stands where a barrier is meant")

A rule may be both: what it sees in one file, and what the program hands over from another. Of two findings of one code
at one place, one is shown.

``file`` is a `source.File`: ``qualified(expression)`` follows imports and aliases of this file to a dotted name (None
if it does not lead to one), ``parents(node)`` yields what encloses it, ``symbol(node)`` names the function, ``text``
and ``tree`` are whole. Results are cached with the file: a LocalRule sees nothing but its file.

**A ProgramRule** asks about the program as a whole (`program.Program`), which was run for four ranks at once::

    class UngatedDelete(ProgramRule):
        def check(self, program):
            for root, reach in ungated(program.analysis, "delete"):     # kinds as in knowledge/effects.toml
                yield self.effect(program, root, reach, f"every rank deletes {named(reach)}")

- `queries.effects` finds effects that every rank has on one thing, or one process of each node.
- ``for root, parted in program.divergences("rank", "return")``: where ranks go on to different sequences of
  collectives, by cause.
- ``program.analysis.reached("local clock", "collective")``: all calls of these kinds that entries reach.

Roles: four processes stand for all: rank 0, the first process of another node, and two others. A condition is true,
false or unknown for each of them. Several processes are taken for granted: the world's size is over 1.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

from allranks.check.program import Program
from allranks.check.roots import Root
from allranks.check.sources.source import File
from allranks.check.traces.compare import Divergence
from allranks.check.traces.walk import Reach
from allranks.findings import Confidence, Finding, Fix, Note, Place, Severity

_FILE, FOUND = "# file: ", "  # <-- found"
# How the codes of `MetaRule` begin.
ABOUT_ITSELF = "AR9"
Assume: TypeAlias = Literal["auto", "multi-host"]


@dataclass(frozen=True, slots=True)
class Example:
    """A small project: the text of each file by its path, and the places (path, line) at which something is found."""

    files: Mapping[str, str]
    found: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, text: str) -> Example:
        """Read an example: a program ``train.py``, or files that begin with ``# file: PATH``; ``# <-- found`` ends the
        lines where something is found."""
        files: dict[str, list[str]] = {}
        path, found = "train.py", []
        for line in text.splitlines():
            if line.startswith(_FILE):
                path = line.removeprefix(_FILE)
                continue
            files.setdefault(path, []).append(line.removesuffix(FOUND))
            if line.endswith(FOUND):
                found.append((path, len(files[path])))
        texts = {path: "".join(f"{line}\n" for line in lines) for path, lines in files.items()}
        return cls(texts or {path: ""}, tuple(found))


class Rule:
    """One fault. A subclass sets the class variables; its docstring is its documentation page.

    ``of_nodes``: the fault shows on several nodes alone: confidence is low where nothing in a project speaks of them.
    ``default``: False for a rule that runs when it is selected: one that says much of right code, or advises. How often
    each was right is told by `measured`.
    ``instead_of``: rules that say the same less exactly: what they find at one place with this one is not shown.
    ``cluster`` and ``advice`` are what findings say when they have nothing more exact to say.
    """

    code: ClassVar[str]
    name: ClassVar[str]
    severity: ClassVar[Severity]
    row: ClassVar[str]
    default: ClassVar[bool] = True
    of_nodes: ClassVar[bool] = False
    instead_of: ClassVar[tuple[str, ...]] = ()
    cluster: ClassVar[str] = ""
    advice: ClassVar[str] = ""
    bad: ClassVar[tuple[str, ...]] = ()
    good: ClassVar[tuple[str, ...]] = ()

    def finding(
        self,
        place: Place,
        symbol: str,
        message: str,
        *,
        severity: Severity | None = None,
        cluster: str | None = None,
        advice: str | None = None,
        notes: Iterable[Note] = (),
        fix: Fix | None = None,
        confidence: Confidence = "high",
    ) -> Finding:
        """Return a finding of this rule; what is left out is taken from the class."""
        return Finding(
            code=self.code,
            name=self.name,
            severity=severity or self.severity,
            message=message,
            place=place,
            symbol=symbol,
            cluster=cluster if cluster is not None else self.cluster,
            advice=advice if advice is not None else self.advice,
            notes=tuple(notes),
            fix=fix,
            confidence=confidence,
        )


class LocalRule(Rule):
    """A rule that needs one file only. See the module's docstring. ``whole``: `confirm` is no question of evidence, and
    is asked also where several processes are assumed."""

    words: ClassVar[tuple[str, ...]] = ()
    nodes: ClassVar[tuple[type[ast.AST], ...]] = ()
    calls: ClassVar[Iterable[str]] = ()
    whole: ClassVar[bool] = False

    def applies(self, file: File) -> bool:  # noqa: ARG002 - for heirs
        """Say whether anything can be wrong in a file: asked once, where one of ``words`` stands in it."""
        return True

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        """Yield what is wrong at ``node``, which is of one of ``nodes``, and if it is a call, of one of ``calls``."""
        raise NotImplementedError

    def confirm(self, finding: Finding, program: Program) -> bool:  # noqa: ARG002 - for heirs
        """Say whether a finding holds in the whole program; for rules that need evidence from other files."""
        return True

    def local(self, file: File, node: ast.AST, message: str, *, fix: Fix | None = None, **more: str) -> Finding:
        """Return a finding at ``node``; ``more`` may hold ``cluster`` and ``advice``."""
        return self.finding(
            file.place(node),
            file.symbol(node),
            message,
            fix=fix,
            cluster=more.get("cluster"),
            advice=more.get("advice"),
        )


class ProgramRule(Rule):
    """A rule that asks about the program as a whole. See the module's docstring."""

    def check(self, program: Program) -> Iterator[Finding]:
        """Yield what is wrong in ``program``."""
        raise NotImplementedError

    def effect(
        self, program: Program, root: Root, reach: Reach, message: str, *, low: bool = False, cluster: str | None = None
    ) -> Finding:
        """Return a finding at a call that an entry reaches, with the calls that lead there. Confidence is low where
        ``low`` says so, in what mostly one process runs, and where nothing shows that the entry is run by several."""
        sure = root.sure and not low and not program.analysis.is_run_once(reach)
        call = reach.call
        return self.finding(
            program.place(call.path, call.span),
            call.symbol,
            message,
            cluster=cluster,
            notes=program.way(reach.chain),
            confidence="high" if sure else "low",
        )

    def divergence(self, program: Program, root: Root, parted: Divergence, message: str, **more: Any) -> Finding:
        """Return a finding where ranks part, with the calls that lead there and both sides. Confidence is low where
        ``low`` is true, and in a program that scripts always start as one process. ``more`` may hold ``low``,
        ``cluster`` and ``advice``."""
        low = more.get("low") or program.analysis.starts.is_alone(root) or root.dead
        return self.finding(
            program.place(parted.path, parted.at),
            parted.symbol,
            message,
            cluster=more.get("cluster"),
            advice=more.get("advice"),
            notes=(*program.way(parted.chain), *program.sides(parted)),
            confidence="low" if low else "high",
        )


class MetaRule(Rule):
    """A fault that the engine or the face reports by itself (an unreadable file, an unused suppression)."""
