"""Run ``allranks check`` once: read the files, judge them, fix them if requested, and show the findings."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, replace
from fnmatch import fnmatch
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from allranks.check.cache import Folder, key_of, secret, version
from allranks.check.config import Config, ConfigWrong
from allranks.check.kept import Judged, read, written
from allranks.check.retired import remarks
from allranks.cli.baseline import read_baseline
from allranks.cli.check_project import MANY, Files, Project, files_of, overridden, part_of, project_of
from allranks.cli.printed import print_report, print_text, write_file
from allranks.cli.rehearsal_file import rehearsed_in
from allranks.failure import one_line
from allranks.report.base import count

if TYPE_CHECKING:
    from allranks.check.reading import Cache
    from allranks.check.results.baseline import Baseline
    from allranks.check.results.mend import Mended
    from allranks.report.base import Report

BASELINE = "allranks-baseline.json"
# These forms carry fingerprints, or the version of who wrote them.
WHOLE = ("json", "sarif", "html")


def run(arguments: Namespace) -> int:
    """Run the check, and return the exit code. Raises AllranksError for arguments that cannot be used."""
    paths = [arguments.stdin_filename] if arguments.stdin_filename else arguments.paths or [Path()]
    project = project_of(paths)
    project = replace(project, config=overridden(project.config, arguments))
    if arguments.show_settings:
        return _show_settings(project)
    if arguments.stdin_filename:
        name = Path(os.path.relpath(Path.cwd() / paths[0], project.root)).as_posix()
        given = {name: sys.stdin.buffer.read()}
        files = part_of(project, given, {})
    else:
        files = files_of(project, paths)
    _must_be_there(project, files)
    if arguments.show_files:
        print("\n".join(_seen(project, path) for path in files.files if files.shown is None or path in files.shown))
        return 0
    if arguments.fix or arguments.diff:
        return _mend(project, files, arguments)
    return _show(project, files, judged_of(project, files, keep=not arguments.no_cache), arguments)


def _must_be_there(project: Project, files: Files) -> None:
    for entry in project.config.entry_points:
        if not any(fnmatch(path, entry) for path in files.files):
            raise ConfigWrong(
                f"the entry {entry} is not among the files that are read.",
                remedy="Name it from the project's root (--show-settings); --show-files lists what is read.",
            )
    if files.importers_skipped:
        why = (
            f"the project has more than {MANY:,} other Python files"
            if project.known
            else "there is no pyproject.toml or .git here"
        )
        print(
            f"allranks check: {why}, so files that import the named ones were not looked for;"
            " without a PATH all files are read.",
            file=sys.stderr,
        )
    if not files.files and not files.failed:
        excluded = " that .gitignore does not exclude" if project.config.respect_gitignore else ""
        print(f"allranks check: found no Python file, notebook or script here{excluded}.", file=sys.stderr)


def _seen(project: Project, path: str) -> str:
    return one_line(os.path.relpath(project.root / path))


def _show_settings(project: Project) -> int:
    print(f"root = {os.fspath(project.root)!r}")
    print(f"pyproject = {project.where!r}")
    for name, value in asdict(project.config).items():
        print(f"{name.replace('_', '-')} = {list(value) if isinstance(value, tuple) else value!r}")
    return 0


def judged_of(project: Project, files: Files, *, keep: bool) -> Judged:
    """Return what the check finds in files. ``keep``: read and write the cache."""
    config = project.config
    if not keep:
        return _judge(config, files, None)
    folder = Folder(project.root / config.cache_dir, version(), secret())
    shown = sorted(files.shown) if files.shown is not None else None
    told = replace(config, fail_on="", output_format="", baseline="", cache_dir="")
    key = key_of(files.files, sorted(files.failed.items()), (shown, files.complete), told)
    kept = folder.judged(key)
    judged = read(kept) if kept is not None else None
    if judged is None:
        judged = _judge(config, files, folder)
        folder.keep(key, written(judged))
    for why in folder.lost:
        print(f"allranks check: cache: {why}", file=sys.stderr)
    return judged


def _judge(config: Config, files: Files, cache: Cache | None) -> Judged:
    from allranks.check.crew import deep, read_ahead, uncollected
    from allranks.check.judge import judge

    with uncollected(), deep():
        return judge(
            files.files,
            config,
            failed=files.failed,
            shown=files.shown,
            whole=files.complete,
            cache=cache,
            ahead=read_ahead,
        )


def _mend(project: Project, files: Files, arguments: Namespace) -> int:
    from allranks.check.reading import Memory
    from allranks.check.results.mend import diff, mend
    from allranks.check.sources.notebook import text_of

    memory = Memory()

    def judge(now: Mapping[str, bytes]) -> Judged:
        return _judge(project.config, replace(files, files=dict(now)), memory)

    mended = mend(files.files, judge, unsafe=arguments.unsafe_fixes)
    for fix in mended.refused:
        where = one_line(str(fix.edits[0].place))
        print(f"allranks check: not made, the text would not parse: {where}: {fix.title}", file=sys.stderr)
    if arguments.diff:
        for path, raw in mended.changed.items():
            print(diff(_seen(project, path), text_of(path, files.files[path]), text_of(path, raw)), end="")
        print(f"Would make {_made(mended)}", file=sys.stderr)
        return 1 if mended.changed and not arguments.exit_zero else 0
    if arguments.stdin_filename:
        sys.stdout.buffer.write({**files.files, **mended.changed}[next(iter(files.shown or ()))])
        return 0
    for path, raw in mended.changed.items():
        _replace(project.root / path, raw)
    print(f"Made {_made(mended)}", file=sys.stderr)
    now = replace(files, files={**files.files, **mended.changed})
    return _show(project, now, mended.judged, arguments)


def _made(mended: Mended) -> str:
    fixes = f"{mended.fixes} {'fix' if mended.fixes == 1 else 'fixes'}"
    return f"{fixes} in {count(len(mended.changed), 'file')}."


def _replace(path: Path, raw: bytes) -> None:
    """Replace a file atomically, and keep its mode.

    If the path is a symbolic link, replace the file that it points to.
    """
    path = Path(os.path.realpath(path))
    passing = path.with_name(f".{path.name}.{token_hex(4)}")
    try:
        with open(passing, "xb") as file:  # never what a link leads to
            file.write(raw)
        passing.chmod(path.stat().st_mode)
        passing.replace(path)
    except OSError as error:
        if not isinstance(error, FileExistsError):
            passing.unlink(missing_ok=True)
        raise ConfigWrong(f"{path} cannot be written: {error.strerror}") from error


def _show(project: Project, files: Files, judged: Judged, arguments: Namespace) -> int:
    from allranks.check.results.baseline import written as baseline_text
    from allranks.check.results.shown import prints_of, report_of
    from allranks.report.confirm import with_rehearsal
    from allranks.report.moved import rebase_report_paths

    config = project.config
    if arguments.write_baseline:
        target = Path(config.baseline or BASELINE)
        kept = _not_looked_for(target, config, files)
        write_file(target, baseline_text(judged.findings, prints_of(judged, files.files), kept))
        left = f", and left {count(len(kept), 'other')} alone" if kept else ""
        print(f"Wrote {count(len(judged.findings), 'finding')} to {target}{left}.")
        return 0
    baseline = read_baseline(config.baseline) if config.baseline else None
    _report_retired(config, judged, baseline)
    form = config.output_format
    prints = prints_of(judged, files.files) if baseline or form in WHOLE else None
    made_by = _version() if form in WHOLE else ""
    name = project.root.resolve().name
    report = report_of(judged, files.files, version=made_by, project=name, prints=prints, baseline=baseline)
    if arguments.rehearsal is not None:
        report = with_rehearsal(report, rehearsed_in(arguments.rehearsal, project.root))
    reader = _repository(project.root) if form in ("sarif", "github") else Path.cwd()
    _print(rebase_report_paths(report, project.root.as_posix(), reader.as_posix()), form, arguments)
    if form == "full" and config.assume == "auto" and not report.findings and _shows_one_process(report):
        hint = "nothing here shows several processes; --assume multi-host asks what would go wrong if there were some."
        print(f"allranks check: {hint}", file=sys.stderr)
    failing = ("error",) if config.fail_on == "error" else ("error", "warning")
    return 1 if not arguments.exit_zero and any(f.severity in failing for f in report.findings) else 0


def _report_retired(config: Config, judged: Judged, baseline: Baseline | None) -> None:
    """Print a line for each retired rule that the settings, a comment or the baseline names."""
    ignored = (code for _, codes in config.per_file_ignores for code in codes)
    known = (entry["code"] for entry in baseline.entries) if baseline is not None else ()
    named = {*judged.retired, *(config.select or ()), *config.extend_select, *config.ignore, *ignored, *known}
    for line in remarks(named):
        print(f"allranks check: {line}", file=sys.stderr)


def _shows_one_process(report: Report) -> bool:
    about = ("initialisation", "sharding", "gating", "collectives")
    return report.files > 0 and all(row.verdict == "not seen" for row in report.rows if row.topic in about)


def _repository(root: Path) -> Path:
    """Return the folder to which a repository's paths are relative.

    It is the closest folder with a .git, or else the project's folder.
    """
    return next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), root)


def _not_looked_for(target: Path, config: Config, files: Files) -> list[Mapping[str, Any]]:
    """Return the baseline entries that this run did not check.

    They are entries of rules that did not run, or of files that it did not read.
    """
    from allranks.check.judge import settings_of

    if not target.exists():
        return []
    ran = settings_of(config).codes()
    asked = files.files if files.shown is None else files.shown
    entries = read_baseline(os.fspath(target)).entries
    return [one for one in entries if one["code"] not in ran or (one["path"] not in asked and not files.complete)]


def _print(report: Report, form: str, arguments: Namespace) -> None:
    if arguments.statistics:
        print_text(_statistics(report, form), arguments.output_file)
    else:
        print_report(report, form, arguments.output_file)


def _statistics(report: Report, form: str) -> str:
    """Return the number of findings by rule, as text. Raises ConfigWrong for a format that cannot show it."""
    import json

    from allranks.report.base import summary
    from allranks.report.columns import format_table

    if form not in ("full", "concise", "json"):
        raise ConfigWrong(f"--statistics: expected the form full, concise or json, found {form}.")

    fixable = {finding.code for finding in report.findings if finding.fix and finding.fix.safe}
    counted = Counter((finding.code, finding.name) for finding in report.findings)
    if form == "json":
        return json.dumps(
            [{"code": c, "name": name, "count": n, "fixable": c in fixable} for (c, name), n in counted.most_common()]
        )
    rows = [(n, code, "[*]" if code in fixable else "", name) for (code, name), n in counted.most_common()]
    return "\n\n".join([*([format_table(("found", "rule", "", "name"), rows)] if rows else []), summary(report)])


def _version() -> str:
    from importlib.metadata import version as version_of

    return version_of("allranks")
