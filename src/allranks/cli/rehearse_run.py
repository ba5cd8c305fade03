"""Run ``allranks rehearse`` once: read the settings, run the scenarios, and show the findings."""

from __future__ import annotations

import os
import shlex
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from allranks.cli.leftovers import copies_of_killed_rehearsals, remove_leftovers
from allranks.cli.printed import must_be_writable, print_report, write_file
from allranks.cli.progress import ProgressLine
from allranks.cli.pyproject import closest
from allranks.cli.rehearse_start import must_not_start_ranks, source_path, started
from allranks.cli.run import target_from
from allranks.cli.run_capacity import must_fit
from allranks.findings import Finding
from allranks.launch.job import Command
from allranks.launch.result import JobResult
from allranks.rehearse.accelerator.machine import default_accelerator
from allranks.rehearse.advice import explained
from allranks.rehearse.config import Config, read
from allranks.rehearse.fault import FaultError, chosen
from allranks.rehearse.plan import Plan, with_batch
from allranks.rehearse.rehearsal import Rehearsal, rehearse
from allranks.rehearse.watch.undo import PATHS
from allranks.report.base import count
from allranks.report.forms import FORMS
from allranks.settings import ConfigWrong

if TYPE_CHECKING:
    from allranks.check.results.baseline import Baseline

BASELINE = "allranks-rehearsal-baseline.json"


def run(p: ArgumentParser, arguments: Namespace) -> int:
    """Rehearse, and return the exit code. Raises AllranksError for a configuration that cannot be used."""
    found = closest(Path.cwd(), "rehearse")
    config = _configured(found, arguments)
    arguments.output_file, arguments.trace = map(_absolute, (arguments.output_file, arguments.trace))
    words = [word for at, word in enumerate(arguments.command) if at or word != "--"]
    if not words and found is not None and config.command:
        words = [*config.command]
        os.chdir(found[0].parent)
    start = started(words)
    if config.ranks is None and start.ranks is not None:
        config = config.with_(ranks=start.ranks)
    words, is_module = [*start.program], arguments.module
    if words[:1] == ["-m"]:
        words, is_module = words[1:], True
    if arguments.suggest:
        from allranks.cli.rehearse_suggest import show_suggestion

        return show_suggestion(target_from(p, words, module=is_module), config.ranks or 2)
    plan = _plan(p, arguments, config, words, is_module)
    baseline = None
    if config.baseline and not arguments.write_baseline:
        from allranks.cli.baseline import read_baseline

        baseline = read_baseline(config.baseline)
    for file in filter(None, (arguments.output_file, arguments.trace)):
        must_be_writable(file)
    remove_leftovers()
    for folder in copies_of_killed_rehearsals():
        note = "a rehearsal was killed, so files may be as it has made them. Copies of the files before it"
        print(f"allranks rehearse: {note}: {folder}/{PATHS}. Remove this folder when you need none.", file=sys.stderr)
    line = ProgressLine()
    done = rehearse(plan, progress=line.print, live=line.update)
    return _show(done, plan, config, baseline, arguments)


def _absolute(file: Path | None) -> Path | None:
    return file and Path(os.path.abspath(file))


def _show(done: Rehearsal, plan: Plan, config: Config, baseline: Baseline | None, arguments: Namespace) -> int:
    """Print the report, or write the baseline; return the exit code."""
    from allranks.cli.rehearse_report import report_of, write_trace

    drawn = arguments.trace is not None or config.output_format == "html"
    report = report_of(done, plan, config.allow, baseline, with_timelines=drawn)
    if arguments.write_baseline and not (done.interrupted or done.failure):
        return _write_baseline(Path(config.baseline or BASELINE), report.findings, report.prints)
    if arguments.check:
        from allranks.cli.rehearse_check import with_check

        report = with_check(report, source_path(plan.target))
    if arguments.trace is not None:
        write_trace(report, arguments.trace)
    if done.failure is not None and not done.interrupted:
        sys.stdout.flush()
        print("\n".join(_why_it_failed(done.failure, source_path(plan.target))), file=sys.stderr, flush=True)
    print_report(report, config.output_format, arguments.output_file)
    return _exit_code(done, any(one.severity in ("error", "warning") for one in report.findings))


def _configured(found: tuple[Path, object] | None, arguments: Namespace) -> Config:
    """Return the settings of pyproject.toml with the options of the command line, which win."""
    config = Config()
    if found is not None:
        file, table = found
        config = read(table, os.fspath(file), FORMS)
        paths = {name: _below(file.parent, getattr(config, name)) for name in ("local_paths", "shared_paths")}
        baseline = os.fspath(file.parent / config.baseline) if config.baseline else None
        config = config.with_(**paths, baseline=baseline)
    here = Path.cwd()
    return config.with_(
        ranks=arguments.ranks,
        devices=arguments.devices,
        steps=arguments.steps,
        hosts=arguments.hosts,
        only=arguments.only,
        seeds=1 if arguments.only == ("perturbed",) and arguments.seeds is None else arguments.seeds,
        budget=arguments.budget,
        resume_arguments=None if arguments.resume_args is None else tuple(shlex.split(arguments.resume_args)),
        local_paths=_below(here, arguments.local or ()) or None,
        shared_paths=_below(here, arguments.shared or ()) or None,
        baseline=arguments.baseline and os.path.abspath(arguments.baseline),
        output_format=arguments.output_format,
        accelerator=arguments.accelerator,
    )


def _below(folder: Path, paths: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(os.path.realpath(folder / path) for path in paths)


def _plan(p: ArgumentParser, arguments: Namespace, config: Config, words: list[str], is_module: bool) -> Plan:
    """Return what to rehearse. Ends the process for a wrong command line."""
    if config.ranks is None:
        behind = "-n" in words or "--ranks" in words
        where = " before the script: what is behind it belongs to the script" if behind else ""
        p.error(f"how many ranks? Give -n N{where}, or set ranks in [tool.allranks.rehearse]")
    target = target_from(p, words, module=is_module)
    if config.arguments and not isinstance(target, Command) and not target.arguments:
        words = [*words, *config.arguments]
        target = target_from(p, words, module=is_module)
    must_not_start_ranks(target, config.ranks)
    must_fit(p, config.ranks)
    if any(os.getcwd() == path or os.getcwd().startswith(path + os.sep) for path in config.local_paths):
        raise ConfigWrong("--local: the working folder is in it, so each host would have its own copy of the program.")
    if arguments.global_batch_arg:
        with_batch(target, arguments.global_batch_arg, config.ranks)
    try:
        faults = chosen(arguments.fault, size=config.ranks)
    except FaultError as error:
        p.error(f"--fault {error}")
    with_faults = arguments.fault and "faults" not in config.only
    return Plan(
        target,
        config.ranks,
        config.devices,
        hosts=config.hosts,
        steps=config.steps,
        names=(*config.only, "faults") if with_faults else config.only,
        seeds=config.seeds,
        seed=arguments.seed,
        budget=config.budget,
        resume_arguments=config.resume_arguments,
        local=config.local_paths,
        shared=config.shared_paths,
        faults=faults,
        batch_option=arguments.global_batch_arg,
        lines=arguments.lines or arguments.check,
        accelerator=config.accelerator or default_accelerator(),
    )


def _write_baseline(target: Path, findings: Sequence[Finding], prints: Mapping[Finding, str]) -> int:
    from allranks.check.results.baseline import written

    write_file(target, written(findings, prints))
    print(f"Wrote {count(len(findings), 'finding')} to {os.path.relpath(target)}.")
    return 0


def _why_it_failed(result: JobResult, script: str) -> list[str]:
    failed = result.first_failure
    headline = failed.headline() if failed else result.cause or f"exit code {result.exit_code}"
    tail = result.ranks[failed.rank if failed else 0].tail
    return explained(headline, [*tail], script)


def _exit_code(done: Rehearsal, has_findings: bool) -> int:
    if done.interrupted:
        return 128 + done.interrupted
    if done.failure is not None:
        return 3
    return 1 if has_findings else 0
