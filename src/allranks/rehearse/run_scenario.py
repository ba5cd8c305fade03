"""Run one scenario of a plan, which may need several runs of the program, and judge what its ranks did."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from allranks.findings import Finding, Place
from allranks.launch.job import Call, Job
from allranks.launch.result import JobResult
from allranks.rehearse import judge
from allranks.rehearse.checkpoint_names import is_checkpoint, is_temporary
from allranks.rehearse.fault import Fault, FileFault
from allranks.rehearse.judge import failures, faults, hosts, randomness, resume, worlds
from allranks.rehearse.judge.base import Case
from allranks.rehearse.monitor import Monitor
from allranks.rehearse.order import order_of
from allranks.rehearse.plan import Plan, with_batch
from allranks.rehearse.run import Interrupted, Run, run_once, run_unwatched
from allranks.rehearse.scenario import Delays, Probe, Scenario, probe_settings
from allranks.rehearse.trace import Trace
from allranks.rehearse.watch.server import AS_IT_IS, Effect, Server, Treat, Treatment
from allranks.rehearse.watch.undo import Journal
from allranks.storage.temporary_folder import temporary_folder

# Seconds without a step or a line after which ranks are held to hang, on an idle machine, and at most.
_HANGS_AFTER, _AT_MOST = 15.0, 60.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a scenario has shown: its last run, the findings, and why it was not judged ("" if it was).

    ``earlier`` has the starts of the program before the last run.
    """

    run: Run
    findings: list[Finding]
    unseen: str = ""
    earlier: tuple[Run, ...] = ()


def run_scenario(
    plan: Plan, scenario: Scenario, baseline: Trace | None, known: Sequence[Finding], monitor: Monitor
) -> Outcome:
    """Run a scenario, which may need several runs. Raises Interrupted.

    ``baseline`` is the trace of the quiet run, if there was one; ``known`` are the findings of the runs before.
    """
    if scenario.name == "resume":
        return _resume(plan, scenario, baseline, monitor)
    if scenario.fault is not None:
        return _faulted(plan, scenario.fault, baseline, monitor)
    if scenario.name == "worlds":
        return _worlds(plan, scenario, known, monitor)
    outcome = _single(plan, scenario, known, baseline, monitor)
    if baseline is not None:
        seeds = randomness.seeds(baseline, outcome.run.trace)
        outcome.findings.extend(_relative(one) for one in seeds)
    return outcome


def _single(
    plan: Plan, scenario: Scenario, known: Sequence[Finding], baseline: Trace | None, monitor: Monitor
) -> Outcome:
    delays = Delays(plan.ranks, scenario.seed) if scenario.name == "perturbed" else None
    run = _run(plan, scenario, delays, monitor)
    case = Case(run.trace, order_of(run.trace), scenario.seen, os.getcwd())
    if scenario.name == "hosts" and baseline is not None and (apart := hosts.apart(case, baseline)):
        return Outcome(run, [_relative(apart)])
    found = [_relative(one) for one in judge.all_findings(case)]
    if scenario.name == "hosts":
        found = [*(_relative(one) for one in hosts.judge(case)), *hosts.recoded(found, known)]
    how = delays.description if delays else f"with the ranks on {plan.hosts} hosts"
    if scenario.name == "quiet":
        ended = failures.collectives(run.result, run.trace)
    else:
        ended = failures.race(run.result, run.trace, how)
    return Outcome(run, [*found, *(_relative(one) for one in ended)], _shared_folders(run.trace))


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
    case = Case(run.trace, order_of(run.trace), "not seen with this rank later", os.getcwd())
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
        settings = _settings(plan, scenario, hosts=plan.hosts, private=private, local=plan.local)
        settings["lines"] = plan.lines and scenario.name == "quiet"
        if delays is not None and delays.late is not None:
            settings["late"] = delays.late
        job = replace(_job(plan), zygote=delays is None or not delays.has_rank_local_hashes)
        return run_once(job, settings, journal=journal, treat=treat if delays else None, monitor=monitor)


def _make_folders(paths: Sequence[str], journal: Journal) -> None:
    """Make the folders that do not exist, and their parents. The journal removes those that are empty at the end."""
    for path in paths:
        for folder in reversed([Path(path), *Path(path).parents]):
            if not folder.exists():
                journal.note("mkdir", [os.fspath(folder)])
                folder.mkdir()


def _resume(plan: Plan, scenario: Scenario, baseline: Trace | None, monitor: Monitor) -> Outcome:
    """Kill all ranks after a checkpoint, twice, and let the third start run to its end."""
    settings = _settings(plan, scenario)
    runs: list[Run] = []
    with _undone() as journal:
        baseline = baseline or _baseline(plan, journal, monitor)
        for number in range(3):
            on_effect = _kill_after_checkpoint if number < 2 else None
            more = plan.resume_arguments if number else ()
            runs.append(run_once(_job(plan, more), settings, journal=journal, on_effect=on_effect, monitor=monitor))
            if resume.unseen(baseline, [run.trace for run in runs]) or not was_killed(runs[-1]):
                break
    traces = [run.trace for run in runs]
    found = [_relative(one) for one in resume.judge(baseline, traces)]
    failed = runs[-1].result.first_failure
    if failed is not None and not was_killed(runs[-1]):
        return Outcome(runs[-1], found, f"start {len(runs)} of 3 failed: {failed.headline()}", tuple(runs[:-1]))
    return Outcome(runs[-1], found, resume.unseen(baseline, traces), tuple(runs[:-1]))


def _faulted(plan: Plan, fault: Fault, baseline: Trace | None, monitor: Monitor) -> Outcome:
    """Let a fault strike in one run, and start the same command once more after it."""
    settings = _settings(plan, Scenario("faults"))
    with _undone() as journal:
        baseline = baseline or _baseline(plan, journal, monitor)
        if not fault.is_of_files:
            fault = replace(fault, step=fault.step or max(1, baseline.steps // 2))
        of_hit = {**settings, "fault": None if fault.is_of_files else fault.settings(plan.ranks)}
        treat = _treatment(fault, plan.ranks)
        hit = run_once(_job(plan), of_hit, journal=journal, treat=treat, monitor=monitor)
        if why := faults.unseen(fault, hit.trace):
            return Outcome(hit, [], why)
        if fault.action == "delay":
            ended = failures.race(hit.result, hit.trace, f"with the fault {fault}")
            return Outcome(hit, [_relative(one) for one in ended])
        again = run_once(_job(plan, plan.resume_arguments), settings, journal=journal, monitor=monitor)
    found = faults.judge(fault, baseline, (hit.trace, hit.result), (again.trace, again.result))
    return Outcome(again, [_relative(one) for one in found], earlier=(hit,))


def _worlds(plan: Plan, scenario: Scenario, known: Sequence[Finding], monitor: Monitor) -> Outcome:
    """Run the program on all ranks and on one, with the same samples in each step, and compare what it learns."""
    settings = {**_settings(plan, scenario), "norms": True}
    one = replace(_job(plan), ranks=1)
    if plan.batch_option:
        one = replace(one, target=with_batch(plan.target, plan.batch_option, plan.ranks))
    runs = []
    for job in (_job(plan), one):
        with _undone() as journal:
            runs.append(run_once(job, settings, journal=journal, monitor=monitor))
        if runs[-1].result.exit_code:
            failed = runs[-1].result.first_failure
            return Outcome(runs[-1], [], f"the run of {job.ranks} ranks failed: {failed.headline() if failed else ''}")
    several, single = (run.trace for run in runs)
    found = [_relative(one) for one in worlds.judge(single, several)]
    found = [one for one in found if one.code not in {other.code for other in known}]  # said with more detail
    return Outcome(runs[0], found, worlds.unseen(single, several))


def _treatment(fault: Fault, ranks: int) -> Treat:
    at_files = FileFault(fault, ranks, os.getcwd())

    def treat(effect: Effect) -> Treatment:
        if not at_files.strikes(effect.rank, effect.operation, effect.paths[-1], effect.step):
            return AS_IT_IS
        failing = errno.ENOSPC if fault.action == "enospc" else 0
        return Treatment(fault.seconds if fault.action == "delay" else 0.0, failing, fault.action)

    return treat


def _baseline(plan: Plan, journal: Journal, monitor: Monitor) -> Trace:
    """Return the trace of a quiet run. Its changes of files are undone."""
    settings = _settings(plan, Scenario("quiet"))
    trace = run_once(_job(plan), settings, journal=journal, monitor=monitor).trace
    journal.undo()
    return trace


def _job(plan: Plan, more: Sequence[str] = ()) -> Job:
    """Return the job of a plan. The arguments ``more`` are added to those of the program."""
    target = plan.target
    if more and not isinstance(target, Call):
        target = replace(target, arguments=(*target.arguments, *more))
    patience = hang_patience(plan.ranks, os.getloadavg()[0], len(os.sched_getaffinity(0)))
    return Job(target, plan.ranks, devices=plan.devices, guard=True, hang_after=patience, on_hang="end", grace=10.0)


def hang_patience(ranks: int, load: float, cores: int) -> float:
    """Return after how many seconds without a step ranks are held to hang: more if they must share their cores.

    ``load`` is how many other processes run.
    """
    return min(_AT_MOST, _HANGS_AFTER * max(1.0, (ranks + load) / (2 * cores)))


def _settings(plan: Plan, scenario: Scenario, **more: Any) -> Probe:
    return probe_settings(scenario, steps=plan.steps, accelerator=plan.accelerator, **more)


def known_answer(plan: Plan, quiet: Run) -> str:
    """Return what is wrong with JAX's collectives across processes on this CPU.

    Return "" if they return known answers, or if the program does not use them in its quiet run. Raises Interrupted.
    """
    if plan.accelerator != "cpu" or not quiet.trace.has_joined_jax:
        return ""
    check = Call("allranks.rehearse.known_answer.jax:check")
    result = run_unwatched(Job(check, plan.ranks, devices=plan.devices, timeout=60.0))
    if result.signal:
        raise Interrupted(result.signal, quiet)
    failed = result.first_failure
    return f"findings about numbers may be wrong: {failed.what}" if failed else ""


def _kill_after_checkpoint(server: Server, effect: Effect) -> None:
    changes = effect.operation not in ("read", "remove", "rmdir")
    path = effect.paths[-1]
    if effect.step and changes and is_checkpoint(path) and not is_temporary(path):
        server.kill_ranks(steps=2)


def was_killed(run: Run) -> bool:
    """Return whether a rehearsal killed ranks of this run."""
    return any(event.kind == "killed" for event in run.trace.events)


@contextmanager
def _undone() -> Iterator[Journal]:
    """Restore all files at the end of the ``with`` block."""
    here = os.getcwd()
    with temporary_folder("undo") as folder:
        journal = Journal(folder)
        try:
            yield journal
        finally:
            for path, error in journal.undo().items():
                print(f"allranks rehearse: {path} is not as it was before the run: {error.strerror}", file=sys.stderr)
            os.chdir(here)  # a new folder, if the program has removed the old one


def _relative(finding: Finding) -> Finding:
    """Return a finding with paths relative to the working directory."""
    notes = tuple(replace(note, place=relative(note.place)) for note in finding.notes)
    place = relative(finding.place)
    assert place is not None
    return replace(finding, place=place, notes=notes)


def relative(place: Place | None) -> Place | None:
    """Return a place with its path relative to the working directory, or None for None."""
    if place is None:
        return None
    here = os.getcwd() + os.sep
    full = os.path.abspath(place.path)
    return replace(place, path=Path(full.removeprefix(here)).as_posix())
