"""Implement ``allranks rehearse``: run a program as N ranks here, and report what would fail on a cluster."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from allranks.cli.command_parser import CommandParser
from allranks.cli.local_path import local_path, local_text
from allranks.cli.option_values import at_least_one, integer, takes_value
from allranks.cli.other_launchers import answer

DESCRIPTION = (
    "Run an unmodified script as N ranks on this machine, several times, and report what would fail on a cluster."
)
EPILOG = """\
examples:
  allranks rehearse -n 4 train.py --config tiny.yaml          a script, with arguments that make it small
  allranks rehearse -n 2 -m package.train                     a module
  allranks rehearse                                           the command in [tool.allranks.rehearse]
  allranks rehearse --suggest train.py                        arguments that make it small; runs nothing
  allranks rehearse -n 4 --only perturbed --seed 2 train.py   one perturbed run again

The exit code is 0 without findings, 1 with findings, 2 for a wrong command line or configuration, 3 if the program
fails by itself. All options, and [tool.allranks.rehearse]: docs/rehearse.md."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``allranks rehearse``."""
    p = CommandParser(
        prog="allranks rehearse",
        usage="allranks rehearse -n N [options] (script.py | -m module | -- command) [arguments ...]",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _about_runs(p)
    _about_output(p)
    p.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return p


def _about_runs(p: argparse.ArgumentParser) -> None:
    from allranks.rehearse.config import ACCELERATORS
    from allranks.rehearse.scenario import NAMES

    p.add_argument("-n", "--ranks", type=at_least_one, metavar="N", help="number of ranks (processes)")
    p.add_argument("-d", "--devices", type=at_least_one, metavar="M", help="virtual CPU devices per rank")
    p.add_argument("-m", dest="module", action="store_true", help="run a module, as python -m does")
    p.add_argument("--steps", type=integer, metavar="N", help="end all ranks after N steps (20; 0: never)")
    p.add_argument("--hosts", type=at_least_one, metavar="H", help="pretended hosts in the scenario hosts (2)")
    p.add_argument("--only", type=_names, metavar="NAMES", help=f"scenarios to run, of {','.join(NAMES)}")
    p.add_argument("--seeds", type=at_least_one, metavar="N", help="perturbed runs (3)")
    p.add_argument("--seed", type=at_least_one, default=1, metavar="S", help="the seed of the first perturbed run (1)")
    fault = "add a run with a fault, e.g. kill:rank=1@step=5 (may be repeated)"
    p.add_argument("--fault", action="append", default=[], metavar="WHAT", help=fault)
    batch = "the program's option for the batch of one rank: --only worlds runs one rank with N times its value"
    p.add_argument("--global-batch-arg", default="", metavar="OPTION", help=batch)
    p.add_argument("--budget", type=float, metavar="S", help="seconds for all runs together (120)")
    p.add_argument("--resume-args", metavar="TEXT", help="arguments that are added when the program starts again")
    suggest = "run nothing: propose arguments that make the script small enough"
    p.add_argument("--suggest", action="store_true", help=suggest)
    local = "a folder that is on the disk of each host: pretended hosts have their own copies (may be repeated)"
    p.add_argument("--local", type=local_text, action="append", metavar="PATH", help=local)
    accelerator = "cpu: programs that ask for CUDA run on the CPU, the default without a GPU; none: they fail"
    p.add_argument("--accelerator", choices=ACCELERATORS, help=accelerator)
    shared = "a folder in the temporary folder that all hosts share (may be repeated)"
    p.add_argument("--shared", type=local_text, action="append", metavar="PATH", help=shared)


def _about_output(p: argparse.ArgumentParser) -> None:
    from allranks.report.forms import FORMS

    p.add_argument("--output-format", choices=FORMS, help="default: full")
    p.add_argument("--output-file", type=local_path, metavar="FILE", help="write the report there")
    lines = "record every line that the quiet run reaches, for allranks check --rehearsal"
    p.add_argument("--lines", action="store_true", help=lines)
    p.add_argument("--check", action="store_true", help="read the code too, and say what of it the rehearsal confirms")
    trace = "write what each rank did, for ui.perfetto.dev (.json, or .json.gz)"
    p.add_argument("--trace", type=local_path, metavar="FILE", help=trace)
    p.add_argument("--baseline", type=local_text, metavar="FILE", help="do not show the findings in this file")
    p.add_argument("--write-baseline", action="store_true", help="write what is found now to the baseline, and end")


def _names(text: str) -> tuple[str, ...]:
    from allranks.rehearse.scenario import NAMES

    names = tuple(word.strip() for word in text.split(",") if word.strip())
    if unknown := [name for name in names if name not in NAMES]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is no scenario; there are {', '.join(NAMES)}")
    return names


def main(argv: Sequence[str]) -> int:
    """Run ``allranks rehearse`` with these arguments; return its exit code."""
    from allranks.cli.rehearse_run import run
    from allranks.cli.run import NEEDS_LINUX
    from allranks.errors import AllranksError

    p = parser()
    answered = answer(argv, takes_value(p))
    if "write -n" in answered or "did you mean" in answered:  # the others name options of allranks run
        p.error(answered)
    arguments = p.parse_args(argv)
    if sys.platform != "linux":
        p.error(NEEDS_LINUX.format(platform=sys.platform))
    try:
        return run(p, arguments)
    except AllranksError as error:
        print(f"allranks rehearse: {error}", file=sys.stderr)
        return 2
