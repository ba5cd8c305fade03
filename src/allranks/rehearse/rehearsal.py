"""Run a rehearsal: several runs one after another, and the findings in all of them."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from allranks.findings import Finding, Note, Place, Row
from allranks.launch.job import Job, Target
from allranks.launch.result import JobResult
from allranks.rehearse import judge
from allranks.rehearse.judge import failures, hosts, resume, topics
from allranks.rehearse.judge.base import Case
from allranks.rehearse.order import order_of
from allranks.rehearse.run import Run, run_once
from allranks.rehearse.scenario import DEFAULT, Delays, Name, Scenario, probe_settings, scenarios
from allranks.rehearse.trace import Trace
from allranks.rehearse.watch.server import Effect, Server, Treatment
from allranks.rehearse.watch.undo import Journal

# Seconds without a step or a line after which ranks are held to hang.
_HANGS_AFTER = 15.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What to rehearse, and how. ``budget`` is in seconds: no run starts that would probably exceed it."""

    target: Target
    ranks: int
    devices: int | None = None
    hosts: int = 2
    steps: int = 20
    names: Sequence[Name] = DEFAULT
    seeds: int = 3
    seed: int = 1
    budget: float = 120.0


@dataclass(slots=True)
class Rehearsal:
    """The result of a rehearsal.

    ``skipped`` has the scenarios that did not run, and why. ``unseen`` says, by scenario, why it was not judged.
    """

    findings: list[Finding] = field(default_factory=list)
    runs: list[tuple[Scenario, Run, float]] = field(default_factory=list)
    skipped: list[tuple[Scenario, str]] = field(default_factory=list)
    unseen: dict[str, str] = field(default_factory=dict)
    failure: JobResult | None = None
    output: str = ""

    def skip(self, scenario: Scenario, why: str) -> None:
        """Record that a scenario does not run, and why."""
        self.skipped.append((scenario, why))
        self.unseen.setdefault(scenario.name, why)

    def rows(self) -> tuple[Row, ...]:
        """Return the rows of the table of topics."""
        return topics.rows([run.trace for _, run, _ in self.runs], self.findings, self.unseen)


Progress = Callable[[str], None]


def rehearse(plan: Plan, *, progress: Progress) -> Rehearsal:
    """Run as many scenarios of a plan as its budget allows, and judge them.

    ``progress`` gets a line of text for each.
    """
    rehearsal = Rehearsal()
    started = time.monotonic()
    todo = scenarios(plan.names, seeds=plan.seeds, first_seed=plan.seed)
    longest = 0.0
    for number, scenario in enumerate(todo, 1):
        left = plan.budget - (time.monotonic() - started)
        if scenario.name == "hosts" and not 1 < plan.hosts <= plan.ranks:
            rehearsal.skip(scenario, f"{plan.ranks} ranks are not spread over {plan.hosts} hosts")
            continue
        if why := _cannot_be_undone(rehearsal.runs):
            rehearsal.skip(scenario, why)
            continue
        if number > 1 and longest > left:
            rehearsal.skip(scenario, f"the budget of {plan.budget:g} s is used up (--budget)")
            continue
        begun = time.monotonic()
        baseline = next((run.trace for one, run, _ in rehearsal.runs if one.name == "quiet"), None)
        run, found, unseen = _one(plan, scenario, baseline, rehearsal.findings)
        rehearsal.unseen[scenario.name] = unseen
        seconds = time.monotonic() - begun
        longest = max(longest, seconds)
        rehearsal.runs.append((scenario, run, seconds))
        new = _merge(rehearsal.findings, found)
        progress(_line(number, len(todo), scenario, run, seconds, plan.ranks, new))
        if run.result.exit_code and not _was_killed(run):
            rehearsal.output = run.output
            if not _is_explained(run.result, rehearsal.findings):
                found = _again(plan, scenario, run.result) if scenario.name == "quiet" else []
                _merge(rehearsal.findings, found)
                rehearsal.failure = None if found else run.result
            if scenario.name == "quiet":
                break
    return rehearsal


def _cannot_be_undone(runs: Sequence[tuple[Scenario, Run, float]]) -> str:
    """Return why the files of the runs so far could not be put back; "" if they were."""
    for _, run, _ in runs:
        if run.trace.notes or any(run.trace.of("unwatched")):
            return f"files cannot be put back here, {topics.unseen_parts(run.trace)[0]}"
    return ""


def _one(
    plan: Plan, scenario: Scenario, baseline: Trace | None, known: Sequence[Finding]
) -> tuple[Run, list[Finding], str]:
    """Run a scenario, which may need several runs.

    Return the last run, the findings, and why the scenario was not judged ("" if it was).
    """
    if scenario.name == "resume":
        return _resume(plan, scenario, baseline)
    delays = Delays(plan.ranks, scenario.seed) if scenario.name == "perturbed" else None
    run = _run(plan, scenario, delays)
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


def _shared_folders(trace: Trace) -> str:
    """Return why the pretended hosts had no private folders, or "" if they had."""
    event = next(trace.of("shared-folders"), None)
    return f"the hosts shared all folders: {event.data['why']}" if event else ""


def _again(plan: Plan, scenario: Scenario, failed: JobResult) -> list[Finding]:
    """Run once more with the failed rank late.

    If the run does not fail then, the rank was too early: return the findings.
    """
    first = failed.first_failure
    if first is None or plan.ranks == 1:
        return []
    run = _run(plan, scenario, Delays(plan.ranks, 0, late=first.rank))
    if run.result.exit_code:
        return []
    case = Case(run.trace, order_of(run.trace), "not seen with this rank 300 ms later", os.getcwd())
    found = [*judge.all_findings(case), *failures.race(failed, run.trace, "where it comes first")]
    return [_relative(one) for one in found]


def _run(plan: Plan, scenario: Scenario, delays: Delays | None) -> Run:
    def treat(effect: Effect) -> Treatment:
        assert delays is not None
        line = (effect.process, effect.place) if effect.place else effect.frames[:1]
        return Treatment(delays.seconds(effect.rank, effect.operation, line))

    with _undone() as journal:
        settings = probe_settings(scenario, steps=plan.steps, hosts=plan.hosts, private=[tempfile.gettempdir()])
        job = replace(_job(plan), zygote=delays is None or not delays.has_rank_local_hashes)
        return run_once(job, settings, journal=journal, treat=treat if delays else None)


def _resume(plan: Plan, scenario: Scenario, baseline: Trace | None) -> tuple[Run, list[Finding], str]:
    """Kill all ranks after a checkpoint, twice, and let the third start run to its end.

    Return the last run, the findings, and why the scenario was not judged ("" if it was).
    """
    settings = probe_settings(scenario, steps=plan.steps)
    runs: list[Run] = []
    with _undone() as journal:
        if baseline is None:
            baseline = run_once(_job(plan), settings, journal=journal).trace
            journal.undo()
        for number in range(3):
            on_effect = _kill_after_checkpoint if number < 2 else None
            runs.append(run_once(_job(plan), settings, journal=journal, on_effect=on_effect))
            if resume.unseen(baseline, [run.trace for run in runs]) or not _was_killed(runs[-1]):
                break
    traces = [run.trace for run in runs]
    found = resume.judge(baseline, traces)
    return runs[-1], [_relative(one) for one in found], resume.unseen(baseline, traces)


def _job(plan: Plan) -> Job:
    return Job(
        plan.target, plan.ranks, devices=plan.devices, guard=True, hang_after=_HANGS_AFTER, on_hang="end", grace=10.0
    )


def _kill_after_checkpoint(server: Server, effect: Effect) -> None:
    if effect.operation not in ("read", "remove", "rmdir") and resume.is_checkpoint(effect.paths[-1]):
        server.kill_ranks(steps=2)


def _was_killed(run: Run) -> bool:
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


def _is_explained(result: JobResult, findings: Sequence[Finding]) -> bool:
    """Return whether a finding is at the line at which the run failed, or is about the reason why it ended."""
    failed = result.first_failure
    frame = failures.frame_of(failed) if failed else None
    if failed is not None and failures.kind_of(failed) and findings:
        return True
    lines = {(place.path, place.line) for one in findings for place in (one.place, *_noted(one))}
    return frame is not None and (frame.path, frame.line) in lines


def _noted(finding: Finding) -> list[Place]:
    return [note.place for note in finding.notes if note.place]


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


def _merge(known: list[Finding], found: Iterable[Finding]) -> int:
    """Add new findings to ``known``; return how many are new.

    If a finding is known already, add a note to it that says how it was seen again.
    """
    new = 0
    for one in found:
        same = next((i for i, other in enumerate(known) if _is_same(other, one)), None)
        if same is None:
            known.append(one)
            new += 1
        elif (text := Note(one.message, one.place)) not in known[same].notes and one.message != known[same].message:
            known[same] = replace(known[same], notes=(*known[same].notes, text))
    return new


def _is_same(a: Finding, b: Finding) -> bool:
    lines = {(note.place.path, note.place.line) for note in a.notes if note.place}
    here = (b.place.path, b.place.line)
    if (a.place.path, a.place.line) == here:
        return a.code == b.code or b.code == "AR405"
    return here in lines and b.code in (a.code, "AR405")


def _line(number: int, total: int, scenario: Scenario, run: Run, seconds: float, ranks: int, new: int) -> str:
    steps = max((event.step for event in run.trace.events), default=0)
    name = f"rehearsal {number} of {total}, {scenario.title}"
    failed = run.result.first_failure
    end = f"FAILED: {failed.headline()}" if failed else "ok"
    found = f", {new} new finding{'' if new == 1 else 's'}" if new else ""
    return f"{name:34} {steps} steps, {ranks} ranks, {seconds:.1f} s{found}: {end}"
