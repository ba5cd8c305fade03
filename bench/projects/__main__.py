"""``python -m bench.projects [names]``: rehearse public programs, and print what is found in each.

Each program is fetched from its public repository at one commit, or taken from a clone that is there (--clones). Small
data are made for it in the folder of its code. Nothing of it is ever committed.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.check.fetch import Missing, parts
from bench.page import table
from bench.projects.catalog import PROGRAMS, Program

FOLDER = Path(os.environ.get("ALLRANKS_PROJECTS", Path.home() / ".cache" / "allranks-projects"))
COLUMNS = ("program", "runs", "steps", "seconds", "findings", "read and right", "mapped for CUDA")


def code_of(program: Program, into: Path, clones: Path | None) -> Path:
    """Return the folder of a program's code and data; fetch the code and make the data if they are not there.

    Raises Missing if the code cannot be fetched.
    """
    root = into / program.name
    if not root.is_dir():
        parts(program.repository, program.commit, program.paths, root, into=into, mirror=clones)
        if program.make is not None:
            program.make(root)
    return root


def rehearse(program: Program, root: Path, more: Sequence[str]) -> Mapping[str, Any]:
    """Rehearse a program. Return the report, as JSON has it. Raises RuntimeError if the command wrote none."""
    report = root.with_name(f"{root.name}.json")
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "allranks", "rehearse", *shlex.split(program.options), *more]
    command += ["--output-format", "json", "--output-file", os.fspath(report)]
    command += shlex.split(program.command.replace("{root}", os.fspath(root.resolve())))
    environ, folder = {**os.environ, **program.environ}, root / program.folder
    done = subprocess.run(command, cwd=folder, env=environ, stdout=subprocess.DEVNULL, check=False)
    if not report.exists():
        raise RuntimeError(f"{program.name}: exit code {done.returncode}: {shlex.join(command)}")
    loaded: Mapping[str, Any] = json.loads(report.read_text())
    return loaded


def row(program: Program, report: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the row of a program in the table."""
    runs = [run for run in report["rehearsal"]["runs"] if run["made"]]
    found = [f"{one['code']} {one['path']}:{one['line']}" for one in report["findings"] if one["severity"] != "info"]
    right = [one for one in found if one in program.right]
    mapped = [line["text"] for one in report["readiness"] if one["topic"] == "accelerator" for line in one["evidence"]]
    names = mapped[0].removeprefix("this machine's CPU in the place of ").partition(". Times")[0] if mapped else ""
    failure = report["rehearsal"]["failure"]
    return (
        f"{program.name}: `{program.command.split(' -')[0]}` of {program.repository} {program.commit[:7]}",
        f"{len(runs)}" + (f"; failed: {failure}" if failure else ""),
        f"{max((run['steps'] for run in runs), default=0)}",
        f"{sum(run['seconds'] for run in runs):.0f}",
        ", ".join(found) or "none",
        f"{len(right)} of {len(found)}" if found else "-",
        names or "nothing",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"programs (default: all): {', '.join(one.name for one in PROGRAMS)}")
    parser.add_argument("--into", type=Path, default=FOLDER, help=f"folder for code and data (default: {FOLDER})")
    parser.add_argument("--clones", type=Path, help="folder of git directories named owner+name, looked in first")
    parser.add_argument("--options", default="", help="more options of `allranks rehearse`, as one word")
    chosen = parser.parse_args()
    if unknown := set(chosen.names) - {one.name for one in PROGRAMS}:
        parser.error(f"no program called {', '.join(sorted(unknown))}")
    chosen.into.mkdir(parents=True, exist_ok=True)
    rows, failed = [], []
    for program in PROGRAMS:
        if chosen.names and program.name not in chosen.names:
            continue
        try:
            root = code_of(program, chosen.into, chosen.clones)
            rows.append(row(program, rehearse(program, root, shlex.split(chosen.options))))
            print("; ".join(rows[-1]), file=sys.stderr, flush=True)
        except (Missing, ImportError, RuntimeError, subprocess.CalledProcessError) as error:
            needs = f" (needs {', '.join(program.packages)})" if program.packages else ""
            failed.append(f"{program.name}{needs}: {error}")
    print(table(COLUMNS, rows))
    if failed:
        sys.exit("not rehearsed:\n" + "\n".join(failed))


if __name__ == "__main__":
    main()
