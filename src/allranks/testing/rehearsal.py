"""Rehearse a script from a test, and return the findings."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from allranks.errors import BadArgument
from allranks.findings import Finding
from allranks.launch.job import Script
from allranks.rehearse.accelerator.machine import default_accelerator
from allranks.rehearse.plan import Plan
from allranks.rehearse.rehearsal import rehearse as run
from allranks.rehearse.scenario import DEFAULT, NAMES, Name
from allranks.rehearse.suppressed import without_suppressed


@dataclass(frozen=True, slots=True)
class RehearsalReport:
    """The result of a rehearsal. ``output`` is what the ranks printed in a run that failed.

    ``progress`` has one line per run.
    """

    findings: tuple[Finding, ...]
    failed: bool
    output: str
    progress: tuple[str, ...]

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings with the severity "error"."""
        return tuple(one for one in self.findings if one.severity == "error")

    def __str__(self) -> str:
        found = [f"{one.place.path}:{one.place.line}: {one.code} {one.message}" for one in self.findings]
        return "\n".join([*self.progress, *found, *([self.output] if self.failed else [])])


def rehearse(
    script: str | os.PathLike[str],
    arguments: Sequence[str] = (),
    *,
    ranks: int = 2,
    steps: int = 20,
    only: Sequence[Name] = DEFAULT,
    budget: float = 120.0,
) -> RehearsalReport:
    """Run a script as ``ranks`` processes, several times, and return what would fail on a cluster.

    The scenarios ``only`` run in the working directory, each for ``steps`` steps (0: to the end of the program), until
    ``budget`` seconds are used. Files that a run changes are restored. Findings that a comment suppresses are left out.
    Linux only. Raises BadArgument if the script or a scenario does not exist.
    """
    path = os.fspath(script)
    if not os.path.isfile(path):
        raise BadArgument(f"rehearse: there is no script {path!r} in {os.getcwd()}. Give its path from there.")
    if unknown := [name for name in only if name not in NAMES]:
        raise BadArgument(f"rehearse: only: expected scenarios of {', '.join(NAMES)}, found {unknown[0]!r}.")
    lines: list[str] = []
    plan = Plan(
        Script(path, tuple(arguments)),
        ranks,
        steps=steps,
        names=tuple(only),
        budget=budget,
        accelerator=default_accelerator(),
    )
    done = run(plan, progress=lines.append)
    if done.interrupted:
        raise KeyboardInterrupt
    texts = {
        one.place.path: Path(one.place.path).read_bytes() for one in done.findings if os.path.isfile(one.place.path)
    }
    findings = tuple(without_suppressed(done.findings, texts))
    return RehearsalReport(findings, done.failure is not None, done.output, tuple(lines))
