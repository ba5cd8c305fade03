"""Run one scenario of a plan, which may need several runs of the program, and judge what its ranks did."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from allranks.findings import Finding, Place
from allranks.launch.job import Call, Job
from allranks.launch.result import JobResult
from allranks.rehearse import judge
from allranks.rehearse.judge import failures, hosts, resume
from allranks.rehearse.judge.base import Case
from allranks.rehearse.monitor import Monitor
from allranks.rehearse.order import order_of
from allranks.rehearse.plan import Plan
from allranks.rehearse.run import Run, run_once
from allranks.rehearse.scenario import Delays, Scenario, probe_settings
from allranks.rehearse.trace import Trace
from allranks.rehearse.watch.server import Effect, Server, Treatment
from allranks.rehearse.watch.undo import Journal

# Seconds without a step or a line after which ranks are held to hang.
_HANGS_AFTER = 15.0


def run_scenario(
    plan: Plan, scenario: Scenario, baseline: Trace | None, known: Sequence[Finding], monitor: Monitor
) -> tuple[Run, list[Finding], str]:
    """Run a scenario, which may need several runs.

    Return the last run, the findings, and why the scenario was not judged ("" if it was). Raises Interrupted.
    """
    if scenario.name == "resume":
        return _resume(plan, scenario, baseline, monitor)
    delays = Delays(plan.ranks, scenario.seed) if scenario.name == "perturbed" else None
    run = _run(plan, scenario, delays, monitor)
    case = Case(run.trace, order_of(run.trace), scenario.seen, os.getcwd())
    found = [_relative(one) for one in judge.all_findings(case)]
    if scenario.name == "hosts":
        found = [*(_relative(one) for one in hosts.judge(case)), *hosts.recoded(found, known)]
    how = delays.description if delays else f"with the ranks on {plan.hosts} hosts"
    if scenario.name == "quiet":
        ended = failures.collectives(run.result, run.trace)
    else:
        ended = failures.race(run.result, run.trace, how)
    return run, [*found, *(_relative(one) for one in ended)], _shared_folders(run.trace)


def judge_part(run: Run) -> list[Finding]:
    """Return the findings of a run that was interrupted: those of file calls, which need no complete run."""
    case = Case(run.trace, order_of(run.trace), "seen before the interruption", os.getcwd())
    return [_relative(one) for one in judge.findings_of_a_part(case)]


def _shared_folders(trace: Trace) -> str:
    """Return why the pretended hosts had no private folders, or "" if they had."""
    event = next(trace.of("shared-folders"), None)
    return f"the hosts shared all folders: {event.data['why']}" if event else ""


def run_again(plan: Plan, scenario: Scenario, failed: JobResult, monitor: Monitor) -> list[Finding]:
    """Run once more with the failed rank late.

    If the run does not fail then, the rank was too early: return the findings.
    """
    first = failed.first_failure
    if first is None or plan.ranks == 1:
        return []
    run = _run(plan, scenario, Delays(plan.ranks, 0, late=first.rank), monitor)
    if run.result.exit_code:
        return []
    case = Case(run.trace, order_of(run.trace), "not seen with this rank 300 ms later", os.getcwd())
    found = [*judge.all_findings(case), *failures.race(failed, run.trace, "where it comes first")]
    return [_relative(one) for one in found]


def _run(plan: Plan, scenario: Scenario, delays: Delays | None, monitor: Monitor) -> Run:
    def treat(effect: Effect) -> Treatment:
        assert delays is not None
        line = (effect.process, effect.place) if effect.place else effect.frames[:1]
        return Treatment(delays.seconds(effect.rank, effect.operation, line))

    with _undone() as journal:
        if scenario.name == "hosts":
            _make_folders([*plan.local, *plan.shared], journal)
        private = [one for one in [tempfile.gettempdir()] if one not in plan.shared]
        settings = probe_settings(scenario, steps=plan.steps, hosts=plan.hosts, private=private, local=plan.local)
        job = replace(_job(plan), zygote=delays is None or not delays.has_rank_local_hashes)
        return run_once(job, settings, journal=journal, treat=treat if delays else None, monitor=monitor)


def _make_folders(paths: Sequence[str], journal: Journal) -> None:
    """Make the folders that do not exist, and their parents. The journal removes those that are empty at the end."""
    for path in paths:
        for folder in reversed([Path(path), *Path(path).parents]):
            if not folder.exists():
                journal.note("mkdir", [os.fspath(folder)])
                folder.mkdir()


def _resume(plan: Plan, scenario: Scenario, baseline: Trace | None, monitor: Monitor) -> tuple[Run, list[Finding], str]:
    """Kill all ranks after a checkpoint, twice, and let the third start run to its end.

    Return the last run, the findings, and why the scenario was not judged ("" if it was).
    """
    settings = probe_settings(scenario, steps=plan.steps)
    runs: list[Run] = []
    with _undone() as journal:
        if baseline is None:
            baseline = run_once(_job(plan), settings, journal=journal, monitor=monitor).trace
            journal.undo()
        for number in range(3):
            on_effect = _kill_after_checkpoint if number < 2 else None
            more = plan.resume_arguments if number else ()
            runs.append(run_once(_job(plan, more), settings, journal=journal, on_effect=on_effect, monitor=monitor))
            if resume.unseen(baseline, [run.trace for run in runs]) or not was_killed(runs[-1]):
                break
    traces = [run.trace for run in runs]
    found = resume.judge(baseline, traces)
    return runs[-1], [_relative(one) for one in found], resume.unseen(baseline, traces)


def _job(plan: Plan, more: Sequence[str] = ()) -> Job:
    """Return the job of a plan. The arguments ``more`` are added to those of the program."""
    target = plan.target
    if more and not isinstance(target, Call):
        target = replace(target, arguments=(*target.arguments, *more))
    return Job(target, plan.ranks, devices=plan.devices, guard=True, hang_after=_HANGS_AFTER, on_hang="end", grace=10.0)


def _kill_after_checkpoint(server: Server, effect: Effect) -> None:
    if effect.operation not in ("read", "remove", "rmdir") and resume.is_checkpoint(effect.paths[-1]):
        server.kill_ranks(steps=2)


def was_killed(run: Run) -> bool:
    """Return whether a rehearsal killed ranks of this run."""
    return any(event.kind == "killed" for event in run.trace.events)


@contextmanager
def _undone() -> Iterator[Journal]:
    """Restore all files at the end of the ``with`` block."""
    with tempfile.TemporaryDirectory(prefix="allranks-undo-") as folder:
        journal = Journal(folder)
        try:
            yield journal
        finally:
            journal.undo()


def _relative(finding: Finding) -> Finding:
    """Return a finding with paths relative to the working directory."""
    notes = tuple(replace(note, place=_moved(note.place)) for note in finding.notes)
    place = _moved(finding.place)
    assert place is not None
    return replace(finding, place=place, notes=notes)


def _moved(place: Place | None) -> Place | None:
    if place is None:
        return None
    here = os.getcwd() + os.sep
    full = os.path.abspath(place.path)
    return replace(place, path=Path(full.removeprefix(here)).as_posix())
