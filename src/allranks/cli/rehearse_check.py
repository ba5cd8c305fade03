"""Read the code of a rehearsed program, and add what the check finds to the report (``allranks rehearse --check``)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from allranks.cli.check_project import files_of, project_of
from allranks.cli.check_run import judged_of
from allranks.report.base import Report
from allranks.report.confirm import check_row, read_rehearsal
from allranks.report.document import report_document
from allranks.report.moved import rebase_report_paths


def with_check(report: Report, script: str) -> Report:
    """Return the report of a rehearsal with a row about findings in the files in which ranks were seen.

    ``script`` is the path of the program, or "". Raises AllranksError for settings of the check that cannot be used.
    """
    seen = report.rehearsal.lines if report.rehearsal else {}
    paths = [path for path in map(Path, {script: 0, **seen}) if path.is_file()]
    if not paths:
        return report
    project = project_of(paths)
    found = judged_of(project, files_of(project, paths), keep=True).findings
    root = project.root.resolve().as_posix()
    row = check_row(found, read_rehearsal(report_document(report), "the rehearsal", root))
    row = rebase_report_paths(replace(report, findings=(), prints={}, rows=(row,)), root, Path.cwd().as_posix()).rows[0]
    return replace(report, rows=(*report.rows, row))
