"""AR903: a function that was not followed to its end."""

from __future__ import annotations

import traceback
from collections.abc import Iterator

from allranks.check.budget import Exhausted
from allranks.check.program import Program
from allranks.check.rule import FOUND, ProgramRule
from allranks.check.sources.source import Tangled, module_name
from allranks.findings import Finding, Note, Place

_DEEP = "\n".join(f"def f{n}(x):{FOUND if n == 41 else ''}\n    return f{n + 1}(x)\n" for n in range(64))


class AnalysisIncomplete(ProgramRule):
    """
    ## What it does
    Reports, in one remark, the functions that could not be followed to their end, because too many calls lead into each
    other, or their statements are nested too deeply. Also a file that a rule did not read to its end. Reports, as a
    warning, a file or a function at which a rule or the check itself failed. That is a fault of allranks; all other
    findings hold.

    ## Why is this bad
    That nothing was found there means nothing.

    ## What happens with N processes
    Nothing is known: read the function yourself.

    ## Known problems
    Calls whose target only the running program knows (a function from a dictionary, a plug-in) are not reported,
    because they are everywhere.

    ## Use instead
    Name the function as an entry (`--entry`), or declare what it does: `collectives`, `rank-zero-predicates`.
    """

    code, name, severity, row = "AR903", "analysis-incomplete", "info", "collectives"
    cluster = "What this function does on the ranks is not completely known."
    advice = "Read it yourself, or declare what it does in [tool.allranks.check]."
    bad = (
        f"""\
import torch.distributed as dist

{_DEEP}
def f64(x):
    dist.all_reduce(x)

f0(1)
""",
    )
    good = ("import torch.distributed as dist\n\ndef f(x):\n    dist.all_reduce(x)\n\nf(1)\n",)

    def failed(self, place: Place, code: str, error: Exception) -> Finding:
        """Return a finding about a rule, or whatever else has the name ``code`` here, that raised ``error``."""
        frames = traceback.extract_tb(error.__traceback__)
        where = f" at {frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno}" if frames else ""
        message = f"{code} failed here ({type(error).__name__}: {error}{where}): a fault of allranks, not of this code"
        advice = "Please report it, with the statement at which it failed; the findings of the other rules hold."
        return self.finding(place, module_name(place.path), message, severity="warning", cluster="", advice=advice)

    def given_up(self, place: Place, code: str, why: Tangled | Exhausted, what: str = "this file") -> Finding:
        """Return a finding about a rule that did not look at all of a file, or of the program."""
        return self.finding(
            place,
            module_name(place.path),
            f"{code} did not read all of {what}: {why}",
            cluster=f"The rest of {what} was not checked by this rule.",
            advice="Split the file, or read it yourself.",
        )

    def not_read(self, place: Place, why: str) -> Finding:
        """Return a finding about a file that is beyond what the check reads."""
        return self.finding(
            place,
            module_name(place.path),
            f"this file was not read: {why}",
            cluster="Nothing in this file was checked.",
            advice="Split the statement, or leave the file out (--exclude).",
        )

    def left_out(self, place: Place, why: Exhausted) -> Finding:
        """Return a finding about the longest file of a program that could not be followed with it."""
        return self.finding(
            place,
            module_name(place.path),
            f"the program was not followed into this file, its longest: with it, {why}",
            cluster="What this file does on the ranks is not known.",
            advice="Split the file, or leave it out (--exclude).",
        )

    def check(self, program: Program) -> Iterator[Finding]:
        gaps = {(gap.path, gap.span): gap for gap in program.analysis.unfollowed}
        for gap in gaps.values():
            if gap.error is not None:
                yield self.failed(program.place(gap.path, gap.span), "following a function", gap.error)
        left = [gap for gap in gaps.values() if gap.error is None]
        if not left:
            return
        first, *others = left
        more = f"; and {len(others)} more" if others else ""
        notes = [Note(f"nor was {gap.symbol}: {gap.why}", program.place(gap.path, gap.span)) for gap in others]
        place = program.place(first.path, first.span)
        yield self.finding(
            place, first.symbol, f"{first.symbol} was not followed to its end: {first.why}{more}", notes=notes
        )
