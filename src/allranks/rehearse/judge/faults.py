"""Check what a job does after a fault: whether it shows the failure, keeps its steps, and can be started again."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.findings import Finding
from allranks.launch.result import JobResult
from allranks.rehearse.checkpoint_names import is_checkpoint
from allranks.rehearse.fault import Fault
from allranks.rehearse.judge.base import Kind, finding
from allranks.rehearse.judge.failures import frame_of
from allranks.rehearse.judge.resume import judge as judge_resume
from allranks.rehearse.trace import Event, Trace

UNNOTICED = Kind(
    "AR021",
    "failure-goes-unnoticed",
    "error",
    "The job looks complete: nobody starts it again, and what the failed rank should have done is missing.",
    "Let the error end the rank: catch only what you can repair, raise the rest again, end with a code that is not 0.",
)
STEPS_LOST = Kind(
    "AR022",
    "preemption-loses-steps",
    "warning",
    "Each preemption costs all steps since the last regular checkpoint.",
    "Handle SIGTERM: finish the step, save on all ranks, and end (Checkpointer does so).",
)
NO_RESTART = Kind(
    "AR023",
    "restart-fails",
    "error",
    "After such a fault the job cannot be started again until somebody repairs its files by hand.",
    "Write each file under a temporary name and rename it when it is complete; read only what is complete.",
)

# The operations by which a checkpoint is made.
_SAVES = ("create", "exclusive", "write", "append", "rename", "link", "mkdir")


def judge(
    fault: Fault, baseline: Trace, hit: tuple[Trace, JobResult], again: tuple[Trace, JobResult]
) -> Iterator[Finding]:
    """Yield a finding for what is wrong after a fault.

    ``baseline`` is a run without it, ``hit`` the run with it, and ``again`` the run of the same command after it.
    """
    trace, ended = hit
    struck = next(strikes(trace), None)
    if struck is None:
        return
    yield from filter(None, (_unnoticed(fault, ended, trace, struck), _steps_lost(fault, baseline, trace, struck)))
    restarted, result = again
    if result.exit_code and result.first_failure is not None:
        failed = result.first_failure
        text = f"after the fault {fault} the same command fails on rank {failed.rank}: {' '.join(failed.what.split())}"
        evidence = [(_where(struck), struck), *_last_writes(trace)]
        if one := finding(NO_RESTART, text, frame_of(failed), evidence):
            yield one
        return
    yield from judge_resume(baseline, [trace, restarted])


def unseen(fault: Fault, hit: Trace) -> str:
    """Return why a fault was not judged, or "" if it was."""
    if next(strikes(hit), None) is not None:
        return ""
    why = "no rank of it took so many steps"
    if fault.is_of_files:
        files = f"a file like {fault.path}" if fault.path else "a checkpoint"
        why = f"no rank of it changed {files}{' twice' if fault.action == 'kill' else ''}"
    return f"the fault {fault} did not strike: {why}"


def strikes(trace: Trace) -> Iterator[Event]:
    """Yield the events at which a fault struck, in the order of time."""
    return trace.of("fault")


def _unnoticed(fault: Fault, ended: JobResult, hit: Trace, struck: Event) -> Finding | None:
    if fault.action not in ("raise", "enospc") or ended.exit_code:
        return None
    if fault.action == "enospc" and _saved_after(hit, struck):
        return None
    what = "an error that was raised in it" if fault.action == "raise" else "a full disk at a checkpoint"
    text = f"the job ends with exit code 0 although rank {struck.rank} met {what} at step {struck.step}"
    return finding(UNNOTICED, text, struck, [(_where(struck), struck)])


def _steps_lost(fault: Fault, baseline: Trace, hit: Trace, struck: Event) -> Finding | None:
    if fault.action != "preempt" or not any(map(_is_save, baseline.of("file"))):
        return None
    saves = [event for event in hit.of("file") if _is_save(event)]
    if any(event.time > struck.time for event in saves):
        return None
    newest = max((event.step for event in saves), default=0)
    if newest >= struck.step:
        return None
    text = f"no checkpoint is written after SIGTERM at step {struck.step}; the newest one is " + (
        f"of step {newest}, and the steps after it are lost" if newest else "missing: all steps are lost"
    )
    return finding(STEPS_LOST, text, struck, [(_where(struck), struck)])


def _saved_after(trace: Trace, struck: Event) -> bool:
    failed = {(event.rank, event.time) for event in strikes(trace)}
    later = [e for e in trace.of("file") if e.rank == struck.rank and e.time > struck.time]
    return any(_is_save(event) and (event.rank, event.time) not in failed for event in later)


def _is_save(event: Event) -> bool:
    return event.data["operation"] in _SAVES and is_checkpoint(event.data["paths"][-1])


def _last_writes(hit: Trace) -> list[tuple[str, Event]]:
    """Return the last change of a checkpoint by each rank."""
    last: dict[int, Event] = {event.rank: event for event in hit.of("file") if _is_save(event)}
    text = "rank {}, step {}: the last change of a checkpoint, {}"
    return [
        (text.format(rank, event.step, event.data["paths"][-1].rpartition("/")[2]), event)
        for rank, event in sorted(last.items())
    ]


def _where(struck: Event) -> str:
    return f"rank {struck.rank}, step {struck.step}: the fault {struck.data['action']} strikes"
