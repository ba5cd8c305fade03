"""Implement ``allranks rehearse``: run a program as N ranks here, and report what would fail on a cluster."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from allranks.cli.local_path import local_path

if TYPE_CHECKING:
    from allranks.findings import Finding
    from allranks.rehearse.rehearsal import Rehearsal
    from allranks.report.base import Report

_SEEDS = 3
DESCRIPTION = (
    "Run an unmodified script as N ranks on this machine, several times, and report what would fail on a cluster."
)


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``allranks rehearse``."""
    from allranks.cli.run import at_least_one
    from allranks.rehearse.scenario import NAMES
    from allranks.report.forms import FORMS

    p = argparse.ArgumentParser(
        prog="allranks rehearse",
        usage="allranks rehearse -n N [options] (script.py | -m module) [arguments ...]",
        description=DESCRIPTION,
    )
    p.add_argument("-n", "--ranks", type=at_least_one, required=True, metavar="N", help="number of ranks (processes)")
    p.add_argument("-d", "--devices", type=at_least_one, metavar="M", help="virtual CPU devices per rank")
    p.add_argument("-m", dest="module", action="store_true", help="run a module, as python -m does")
    p.add_argument("--steps", type=int, default=20, metavar="N", help="end all ranks after N steps (20; 0: never)")
    p.add_argument(
        "--hosts", type=at_least_one, default=2, metavar="H", help="pretended hosts in the scenario hosts (2)"
    )
    p.add_argument("--only", type=_names, metavar="NAMES", help=f"scenarios to run, of {','.join(NAMES)}")
    p.add_argument("--seeds", type=at_least_one, metavar="N", help=f"perturbed runs ({_SEEDS})")
    p.add_argument("--seed", type=at_least_one, default=1, metavar="S", help="the seed of the first perturbed run (1)")
    p.add_argument("--budget", type=float, default=120.0, metavar="S", help="seconds for all runs together (120)")
    p.add_argument("--output-format", choices=FORMS, default="full", help="default: full")
    p.add_argument("--output-file", type=local_path, metavar="FILE", help="write the report there")
    p.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return p


def _names(text: str) -> tuple[str, ...]:
    from allranks.rehearse.scenario import NAMES

    names = tuple(word.strip() for word in text.split(",") if word.strip())
    if unknown := [name for name in names if name not in NAMES]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is no scenario; there are {', '.join(NAMES)}")
    return names


def main(argv: Sequence[str]) -> int:
    """Run ``allranks rehearse`` with these arguments; return its exit code."""
    from allranks.cli.run import NEEDS_LINUX, target_from
    from allranks.rehearse.plan import Plan
    from allranks.rehearse.rehearsal import rehearse
    from allranks.rehearse.scenario import DEFAULT

    p = parser()
    arguments = p.parse_args(argv)
    if sys.platform != "linux":
        p.error(NEEDS_LINUX.format(platform=sys.platform))
    words = [word for i, word in enumerate(arguments.command) if i or word != "--"]
    target = target_from(p, words, module=arguments.module)
    plan = Plan(
        target,
        arguments.ranks,
        arguments.devices,
        hosts=arguments.hosts,
        steps=arguments.steps,
        names=arguments.only or DEFAULT,
        seeds=1 if arguments.only == ("perturbed",) and arguments.seeds is None else arguments.seeds or _SEEDS,
        seed=arguments.seed,
        budget=arguments.budget,
    )
    done = rehearse(plan, progress=lambda line: print(line, file=sys.stderr, flush=True))
    report = _report(done, plan.ranks)
    _print(report, arguments)
    if done.failure is not None:
        print(done.output[-4000:], file=sys.stderr)
        return 3
    return 1 if any(one.severity in ("error", "warning") for one in report.findings) else 0


def _report(done: Rehearsal, ranks: int) -> Report:
    from importlib.metadata import version

    from allranks.check.sources.text import source_of
    from allranks.report.base import Report, count

    places = {one.place.path for one in done.findings}
    places |= {note.place.path for one in done.findings for note in one.notes if note.place}
    texts = {path: Path(path).read_bytes() for path in places if Path(path).is_file()}
    sources = {path: source_of(path, raw) for path, raw in texts.items()}
    done.findings = [one for one in done.findings if not is_suppressed(one, texts)]
    findings, runs = done.findings, len(done.runs)
    steps = max((event.step for _, run, _ in done.runs for event in run.trace.events), default=0)
    return Report(
        tuple(sorted(findings, key=lambda one: (one.place.path, one.place.line, one.code))),
        done.rows(),
        len(sources),
        sum(len(source.lines) for source in sources.values()),
        version("allranks"),
        sources=sources,
        tool="allranks rehearse",
        subject=f"{count(runs, 'run')} of {count(ranks, 'rank')}, {count(steps, 'step')} at most",
    )


def is_suppressed(finding: Finding, texts: Mapping[str, bytes]) -> bool:
    """Return whether a comment at the line of a finding suppresses it (``# allranks: ignore[AR405] reason``)."""
    from allranks.check.results.suppress import suppressed, suppressions
    from allranks.check.sources.text import text_of

    path = finding.place.path
    if path not in texts:
        return False
    comments, _ = suppressions(path, text_of(path, texts[path]), {finding.code})
    return not suppressed([finding], comments)[0]


def _print(report: Report, arguments: argparse.Namespace) -> None:
    from allranks.report.forms import render

    text = render(report, arguments.output_format, colour=sys.stdout.isatty() and not arguments.output_file)
    if arguments.output_file:
        arguments.output_file.write_text(text + "\n", encoding="utf-8")
    else:
        print(text)
