"""Implement ``allranks doctor JOB``: query a running job of this machine to find out which rank waits for which."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from allranks.cli.visible_output import raw_stream

if TYPE_CHECKING:
    from allranks.hang.query import JobState

# The word for the only job that runs here. Names of jobs are hexadecimal.
ONLY = "job"


def main(arguments: argparse.Namespace) -> int:
    """Query the job ``arguments.job``, and print its state; return the exit code.

    If the name is "job" or None, query the only job that runs.
    """
    while True:
        code = _training_thread(arguments)
        if not arguments.watch or code == 2:
            return code
        time.sleep(1.0)


def _training_thread(arguments: argparse.Namespace) -> int:
    from allranks.cli.screen import show_json
    from allranks.errors import AllranksError
    from allranks.hang import query

    name = None if arguments.job == ONLY else arguments.job
    try:
        state = query.query_job(query.choose_job(name), threads=arguments.stacks)
    except AllranksError as error:
        print(f"allranks: {error}", file=sys.stderr)
        return 2
    if arguments.json:
        show_json(_document(state))
    else:
        if arguments.watch and sys.stdout.isatty():
            print("\x1b[H\x1b[2J", end="", file=raw_stream(sys.stdout))
        print("\n".join(_text(state, stacks=arguments.stacks)))
    sys.stdout.flush()
    return 0 if state.well else 1


def _text(state: JobState, *, stacks: bool) -> Iterator[str]:
    from allranks.hang.messages import stack_lines
    from allranks.hang.query import describe_job

    yield from describe_job(state)
    if stacks:
        yield from ("", *stack_lines(state.case, every_thread=True))


def _document(state: JobState) -> dict[str, Any]:
    from allranks.hang.messages import hang_headline

    case = state.case
    slow = {one.rank: one.ratio for one in state.slow}
    ranks = [
        {
            "rank": seen.rank,
            "host": state.hosts[seen.rank],
            "verdict": verdict,
            "ended": seen.ended,
            "answers": seen.fresh,
            "beat": seen.heartbeat.to_json() if seen.heartbeat else None,
            "times_as_slow": slow.get(seen.rank),
            **(
                {"stack": snapshot.stack, "threads": dict(snapshot.threads)}
                if (snapshot := case.snapshots.get(seen.rank))
                else {}
            ),
        }
        for seen, verdict in zip(case.seen, case.diagnosis.verdicts, strict=True)
    ]
    return {
        "job": state.job,
        "command": list(state.command),
        "well": state.well,
        "says": "" if state.well else hang_headline(case, state.hosts),
        "culprits": list(case.diagnosis.culprits),
        "waiting": list(case.diagnosis.waiting),
        "ranks": ranks,
    }
