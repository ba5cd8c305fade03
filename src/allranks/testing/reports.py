"""N ranks' reports of one test, made into the one that pytest shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from allranks.errors import name_ranks

PHASES = ("setup", "call", "teardown")


def combine(
    ranks: Mapping[int, Sequence[pytest.TestReport]], *, size: int, first: int | None, output: str
) -> list[pytest.TestReport]:
    """Return one report a phase: that of the rank that failed first, or else of rank 0.

    ``ranks`` are the reports of those that left any; ``first`` is the rank whose failure ended the job; ``output`` is
    what the ranks printed, merged.
    """
    combined = []
    for phase in PHASES:
        of_phase = {
            rank: report for rank, reports in sorted(ranks.items()) for report in reports if report.when == phase
        }
        if not of_phase:
            continue
        failed = [rank for rank, report in of_phase.items() if report.failed]
        shown = first if first in failed else failed[0] if failed else min(of_phase)
        report = of_phase[shown]
        if failed:
            _name_rank(report, shown)
            report.sections.append(("ranks", _who_failed(of_phase, shown, size)))
            report.sections.append(("output of the ranks", output))
        combined.append(report)
    return combined


def died(item: pytest.Item, why: str, output: str, seconds: float) -> pytest.TestReport:
    """Return the report of a test of which no rank lived to tell."""
    return pytest.TestReport(
        item.nodeid,
        item.location,
        dict.fromkeys(item.keywords, 1),
        "failed",
        why,
        "call",
        sections=[("output of the ranks", output)],
        duration=seconds,
    )


def _name_rank(report: pytest.TestReport, rank: int) -> None:
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        crash.message = f"rank {rank}: {crash.message}"


def _who_failed(reports: Mapping[int, pytest.TestReport], shown: int, size: int) -> str:
    """Return ``rank 2 is shown. ranks 0, 3 passed; rank 1 was stopped before it had ended.``"""
    groups = {
        "failed too": [rank for rank, report in reports.items() if report.failed and rank != shown],
        "passed": [rank for rank, report in reports.items() if not report.failed],
        "ended without a report": [rank for rank in range(size) if rank not in reports],
    }
    told = "; ".join(f"{name_ranks(ranks)} {what}" for what, ranks in groups.items() if ranks)
    return f"rank {shown} of {size} is shown above. {told}.".replace(" .", "")
