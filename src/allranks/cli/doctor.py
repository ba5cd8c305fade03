"""``allranks doctor``: ask a job that runs on this machine, from another terminal, who waits for whom."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allranks.hang.consult import Finding

DESCRIPTION = "Ask a running job which of its ranks do what, since when, and who waits for whom."
EPILOG = """\
Every rank of a job that called allranks.init() can be asked on its own machine, by its user, whatever launcher started
it. Ranks of this machine answer themselves; those of other machines are shown by their last heartbeats. A rank that
does not answer is looked at from outside.

Exit codes: 0 all is well, 1 some rank stands still, is mute or has ended, 2 there is no such job here.
"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``allranks doctor``."""
    p = argparse.ArgumentParser(
        prog="allranks doctor",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("job", nargs="?", help="the job's name, or its beginning; needed only if there are several")
    p.add_argument("--stacks", action="store_true", help="also the stacks of all threads of the ranks of this machine")
    p.add_argument("--json", action="store_true", help="one JSON document instead of text")
    p.add_argument("--watch", action="store_true", help="look again every second, until Ctrl-C")
    return p


def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    arguments = parser().parse_args(argv)
    while True:
        code = _look(arguments)
        if not arguments.watch or code == 2:
            return code
        time.sleep(1.0)


def _look(arguments: argparse.Namespace) -> int:
    from allranks.cli.screen import show_json
    from allranks.errors import AllranksError
    from allranks.hang import consult

    try:
        finding = consult.consult(consult.choose(arguments.job), threads=arguments.stacks)
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
