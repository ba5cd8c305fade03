"""Find out what is wrong in the trace of one run. Each judge looks for one kind of fault; none does I/O."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.findings import Finding
from allranks.rehearse.judge import (
    arrays,
    compiling,
    data,
    decisions,
    devices,
    exits,
    failures,
    faults,
    files,
    folders,
    joining,
    loading,
    metrics,
    models,
    output,
    partial,
    randomness,
    replicas,
    resume,
    saves,
    scaling,
    trackers,
    worlds,
)
from allranks.rehearse.judge.base import Case, Judge, Kind

JUDGES: tuple[Judge, ...] = (
    files.judge,
    folders.judge,
    arrays.judge,
    data.judge,
    devices.judge,
    replicas.judge,
    randomness.judge,
    loading.judge,
    metrics.judge,
    scaling.judge,
    trackers.judge,
    decisions.judge,
    exits.judge,
    saves.judge,
    models.judge,
    output.judge,
    partial.judge,
    compiling.judge,
)

# The faults that only a rehearsal can see; all other faults have rules of ``allranks check``.
KINDS: tuple[Kind, ...] = (
    replicas.NO_GRADIENT,
    replicas.DIVERGED,
    resume.BEGINS_ANEW,
    resume.STATE,
    decisions.SWALLOWED,
    exits.BEHIND,
    exits.CUT_OFF,
    loading.UNTIED,
    compiling.RECOMPILES,
    failures.POLLS,
    saves.BUFFERS,
    models.LEFT_OUT,
    output.REPEATED,
    faults.UNNOTICED,
    faults.STEPS_LOST,
    faults.NO_RESTART,
    scaling.SCALED,
    scaling.CLIPPED,
    worlds.DIFFERS,
)


def all_findings(case: Case) -> Iterator[Finding]:
    """Yield the findings of all judges for a case."""
    yield from joining.explained(case, [one for judge in JUDGES for one in judge(case)])


def findings_of_a_part(case: Case) -> Iterator[Finding]:
    """Yield the findings that need no complete run: those of file calls."""
    for judge in (files.judge, folders.judge):
        yield from judge(case)
