"""Combine the reports of N ranks about one test into the report that pytest shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from allranks.errors import name_ranks

PHASES = ("setup", "call", "teardown")


def combine_reports(
    reports_by_rank: Mapping[int, Sequence[pytest.TestReport]], *, size: int, first_failed_rank: int | None, output: str
) -> list[pytest.TestReport]:
    """Return one report for each phase of a test: from the rank that failed first, or else from rank 0.

    - ``reports_by_rank``: the reports of each rank that wrote any.
    - ``size``: the number of ranks.
    - ``first_failed_rank``: the rank whose failure ended the job.
    - ``output``: what the ranks printed, merged.

    If a test fails on some ranks as expected (``xfail``), it has failed as expected. If only some ranks skip a phase,
    that is a failure, and only teardown follows.
    """
    combined = []
    uneven = False
    for phase in PHASES:
        of_phase = {
            rank: report
            for rank, reports in sorted(reports_by_rank.items())
            for report in reports
            if report.when == phase
        }
        if not of_phase or (phase == "call" and uneven):
            continue
        failed = [rank for rank, report in of_phase.items() if report.failed and not _is_unexpected_pass(report)]
        expected = [rank for rank, report in of_phase.items() if _is_expected_failure(report)]
        skipped = [rank for rank, report in of_phase.items() if report.skipped and rank not in expected]
        shown = first_failed_rank if first_failed_rank in failed else [*failed, *expected, *of_phase][0]
        report = of_phase[shown]
        uneven = bool(skipped) and len(skipped) < size and first_failed_rank not in failed
        if uneven:
            report = _uneven_skip(of_phase[skipped[0]], skipped, size)
        elif report.failed:
            _name_rank(report, shown)
            report.sections.append(("ranks", _who_failed(of_phase, shown, size)))
        if report.failed:
            report.sections.append(("output of the ranks", output))
        combined.append(report)
    return combined


def _is_expected_failure(report: pytest.TestReport) -> bool:
    """Return whether the test failed on this rank, and was marked ``xfail``."""
    return report.skipped and hasattr(report, "wasxfail")


def _is_unexpected_pass(report: pytest.TestReport) -> bool:
    """Return whether a test marked ``xfail(strict=True)`` passed on this rank. pytest reports this as a failure."""
    return report.failed and isinstance(report.longrepr, str) and report.longrepr.startswith("[XPASS(strict)]")


def _uneven_skip(report: pytest.TestReport, skipped: Sequence[int], size: int) -> pytest.TestReport:
    """Return a failure for a phase that only some ranks skipped. ``report`` is from the first of these ranks."""
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    reason = reason.removeprefix("Skipped: ")
    others = name_ranks([rank for rank in range(size) if rank not in skipped])
    report.outcome = "failed"
    report.longrepr = (
        f"{name_ranks(skipped)} skipped the test ({reason}), {others} did not. Skip it on every rank, or on none: "
        "decide by what is equal on all ranks, for instance world.any(condition)."
    )
    return report


def report_of_dead_ranks(item: pytest.Item, reason: str, output: str, seconds: float) -> pytest.TestReport:
    """Return a failure report for a test of which no rank has written a report."""
    return pytest.TestReport(
        item.nodeid,
        item.location,
        dict.fromkeys(item.keywords, 1),
        "failed",
        reason,
        "call",
        sections=[("output of the ranks", output)],
        duration=seconds,
    )


def _name_rank(report: pytest.TestReport, rank: int) -> None:
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        crash.message = f"rank {rank}: {crash.message}"


def _who_failed(reports: Mapping[int, pytest.TestReport], shown: int, size: int) -> str:
    """Return a text such as ``rank 2 of 4 is shown above. ranks 0, 3 passed; rank 1 ended without a report.``"""
    groups = {
        "failed too": [rank for rank, report in reports.items() if report.failed and rank != shown],
        "passed": [rank for rank, report in reports.items() if not report.failed],
        "ended without a report": [rank for rank in range(size) if rank not in reports],
    }
    told = "; ".join(f"{name_ranks(ranks)} {what}" for what, ranks in groups.items() if ranks)
    return f"rank {shown} of {size} is shown above. {told}.".replace(" .", "")
