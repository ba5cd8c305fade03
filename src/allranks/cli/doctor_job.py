"""``allranks doctor JOB``: ask a job that runs on this machine, from another terminal, who waits for whom."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allranks.hang.consult import Finding

# The word for the only job that runs here. Names of jobs are hexadecimal.
ONLY = "job"


def main(arguments: argparse.Namespace) -> int:
    """Ask the job ``arguments.job``, the only one where that is "job" or None; return the exit code."""
    while True:
        code = _look(arguments)
        if not arguments.watch or code == 2:
            return code
        time.sleep(1.0)


def _look(arguments: argparse.Namespace) -> int:
    from allranks.cli.screen import show_json
    from allranks.errors import AllranksError
    from allranks.hang import consult

    name = None if arguments.job == ONLY else arguments.job
    try:
        finding = consult.consult(consult.choose(name), threads=arguments.stacks)
    except AllranksError as error:
        print(f"allranks: {error}", file=sys.stderr)
        return 2
    if arguments.json:
        show_json(_document(finding))
    else:
        if arguments.watch and sys.stdout.isatty():
            print("\x1b[H\x1b[2J", end="")
        print("\n".join(_text(finding, stacks=arguments.stacks)))
    sys.stdout.flush()
    return 0 if finding.well else 1


def _text(finding: Finding, *, stacks: bool) -> Iterator[str]:
    from allranks.hang.consult import in_words
    from allranks.hang.words import stack_lines

    yield from in_words(finding)
    if stacks:
        yield from ("", *stack_lines(finding.case, every_thread=True))


def _document(finding: Finding) -> dict[str, Any]:
    from allranks.hang.words import headline

    case = finding.case
    slow = {one.rank: one.ratio for one in finding.slow}
    ranks = [
        {
            "rank": seen.rank,
            "host": finding.hosts[seen.rank],
            "verdict": verdict,
            "ended": seen.ended,
            "answers": seen.fresh,
            "beat": seen.beat.to_json() if seen.beat else None,
            "times_as_slow": slow.get(seen.rank),
            **({"stack": sight.stack, "threads": dict(sight.threads)} if (sight := case.sights.get(seen.rank)) else {}),
        }
        for seen, verdict in zip(case.seen, case.diagnosis.verdicts, strict=True)
    ]
    return {
        "job": finding.job,
        "command": list(finding.command),
        "well": finding.well,
        "says": "" if finding.well else headline(case, finding.hosts),
        "culprits": list(case.diagnosis.culprits),
        "waiting": list(case.diagnosis.waiting),
        "ranks": ranks,
    }
