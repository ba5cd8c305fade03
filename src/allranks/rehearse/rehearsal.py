"""Run a rehearsal: several runs one after another, and the findings in all of them."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from allranks.findings import Finding, Note, Place, Row
from allranks.launch.events import Terminated
from allranks.launch.result import JobResult
from allranks.launch.signals import Signals
from allranks.rehearse.judge import failures, topics
from allranks.rehearse.monitor import Monitor
from allranks.rehearse.plan import Plan, replay_command
from allranks.rehearse.run import Interrupted, Run
from allranks.rehearse.run_scenario import Outcome, judge_part, known_answer, run_again, run_scenario, was_killed
from allranks.rehearse.scenario import Scenario, scenarios


@dataclass(slots=True)
class Rehearsal:
    """The result of a rehearsal.

    ``skipped`` has the scenarios that did not run, and why. ``unseen`` says, by scenario, why it was not judged.
    ``failure`` is the end of a program that fails by itself, and ``output`` what its ranks printed. ``interrupted`` is
    the signal that ended the rehearsal, or 0. ``is_over``: the quiet run failed, so no other is made. ``doubt`` says
    what is wrong with the collectives of this machine itself. ``longest`` is how many seconds a scenario took at most.
    """

    findings: list[Finding] = field(default_factory=list)
    runs: list[tuple[Scenario, Run, float]] = field(default_factory=list)
    skipped: list[tuple[Scenario, str]] = field(default_factory=list)
    unseen: dict[str, str] = field(default_factory=dict)
    failure: JobResult | None = None
    output: str = ""
    interrupted: int = 0
    is_over: bool = False
    doubt: str = ""
    longest: float = 0.0

    def skip(self, scenario: Scenario, why: str) -> None:
        """Record that a scenario does not run, and why."""
        self.skipped.append((scenario, why))
        self.unseen.setdefault(scenario.name, why)

    def rows(self) -> tuple[Row, ...]:
        """Return the rows of the table of topics."""
        return topics.rows([run.trace for _, run, _ in self.runs], self.findings, self.unseen, self.doubt)


Progress = Callable[[str], None]


def rehearse(plan: Plan, *, progress: Progress, live: Progress | None = None) -> Rehearsal:
    """Run as many scenarios of a plan as its budget allows, and judge them.

    ``progress`` gets a line of text for each. ``live`` gets, twice a second, a line about the run that is going on.
    A signal (Ctrl-C, SIGTERM) ends the rehearsal: all files are restored, and the result is what is known by then.
    """
    rehearsal, monitor = Rehearsal(), Monitor(live)
    started = time.monotonic()
    todo = scenarios(plan.names, seeds=plan.seeds, first_seed=plan.seed, faults=plan.faults)
    with Signals() as signals:
        for number, scenario in enumerate(todo, 1):
            if rehearsal.interrupted or rehearsal.is_over:
                rehearsal.skip(
                    scenario, "the rehearsal was interrupted" if rehearsal.interrupted else "the quiet run failed"
                )
                continue
            if why := _obstacle(plan, scenario, rehearsal, plan.budget - (time.monotonic() - started)):
                rehearsal.skip(scenario, why)
                continue
            title = f"rehearsal {number} of {len(todo)}, {scenario.title}"
            monitor.begin(title, len(rehearsal.findings))
            try:
                progress(f"{title:34} {_rehearse_one(plan, scenario, rehearsal, monitor)}")
            except Interrupted as error:  # in a run that is made to find out why another one failed
                rehearsal.interrupted = error.signum
            if signum := _signal_of(signals):
                rehearsal.interrupted = signum
    return rehearsal


def _rehearse_one(plan: Plan, scenario: Scenario, rehearsal: Rehearsal, monitor: Monitor) -> str:
    """Run one scenario, and add to the rehearsal what it shows. Return a line about it."""
    begun = time.monotonic()
    baseline = next((run.trace for one, run, _ in rehearsal.runs if one.name == "quiet"), None)
    try:
        outcome = run_scenario(plan, scenario, baseline, rehearsal.findings, monitor)
    except Interrupted as error:
        rehearsal.interrupted = error.signum
        outcome = Outcome(error.run, judge_part(error.run), "the run was interrupted")
    run = outcome.run
    rehearsal.unseen[scenario.name] = "; ".join(filter(None, [rehearsal.unseen.get(scenario.name), outcome.unseen]))
    seconds = time.monotonic() - begun
    rehearsal.longest = max(rehearsal.longest, seconds)
    starts = [*outcome.earlier, run]
    numbers = range(1, len(starts) + 1) if outcome.earlier else [0]
    rehearsal.runs += [
        (replace(scenario, start=number), one, one.seconds) for number, one in zip(numbers, starts, strict=True)
    ]
    if scenario.name == "quiet" and not run.result.exit_code:
        rehearsal.doubt = known_answer(plan, run)
    replay = replay_command(plan, scenario)
    new = _merge(rehearsal.findings, [replace(one, replay=replay) for one in outcome.findings])
    if not rehearsal.interrupted and run.result.exit_code and not was_killed(run):
        rehearsal.output = run.output
        if not _is_explained(run.result, rehearsal.findings):
            again = run_again(plan, scenario, run.result, monitor) if scenario.name == "quiet" else []
            _merge(rehearsal.findings, [replace(one, replay=replay) for one in again])
            rehearsal.failure = None if again else run.result
        rehearsal.is_over = scenario.name == "quiet"
    return _line(run, seconds, plan.ranks, new)


def _obstacle(plan: Plan, scenario: Scenario, rehearsal: Rehearsal, left: float) -> str:
    """Return why a scenario cannot run, or "" if it can. ``left`` is how many seconds of the budget are left."""
    if scenario.name == "hosts" and not 1 < plan.hosts <= plan.ranks:
        return f"{plan.ranks} ranks are not spread over {plan.hosts} hosts"
    if why := _cannot_be_undone(rehearsal.runs):
        return why
    if rehearsal.runs and rehearsal.longest > left:
        return f"the budget of {plan.budget:g} s is used up (--budget)"
    return ""


def _signal_of(signals: Signals) -> int:
    """Return the number of a signal that came between two runs, or 0."""
    return next((one.signum if isinstance(one, Terminated) else signal.SIGINT for one in signals.events()), 0)


def _cannot_be_undone(runs: Sequence[tuple[Scenario, Run, float]]) -> str:
    """Return why the files of the runs so far could not be put back; "" if they were."""
    for _, run, _ in runs:
        if run.trace.notes or any(run.trace.of("unwatched")):
            return "files are not restored here (see probes)"
    return ""


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
            replay = one.replay or known[same].replay  # of the run that failed, or showed the fault once more
            known[same] = replace(known[same], notes=(*known[same].notes, text), replay=replay)
    return new


def _is_same(a: Finding, b: Finding) -> bool:
    lines = {(note.place.path, note.place.line) for note in a.notes if note.place}
    here = (b.place.path, b.place.line)
    if (a.place.path, a.place.line) == here:
        return a.code == b.code or b.code == "AR405"
    return here in lines and b.code in (a.code, "AR405")


def _line(run: Run, seconds: float, ranks: int, new: int) -> str:
    found = f", {new} new finding{'' if new == 1 else 's'}" if new else ""
    return f"{run.trace.steps} steps, {ranks} ranks, {seconds:.1f} s{found}: {ending(run)}"


def ending(run: Run) -> str:
    """Return how a run ended, as text: ``ok``, ``interrupted``, or ``FAILED: rank 1 ...``."""
    if was_killed(run):
        return "killed by the rehearsal after a checkpoint"
    failed = run.result.first_failure
    return f"FAILED: {failed.headline()}" if failed else "interrupted" if run.result.signal else "ok"
