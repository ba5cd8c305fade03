"""``python -m bench.check.written``: programs written to try the check on: right ones, and copies with one bug.

``written/*.json``: for each base its files, and its bugs: codes (the best first), place, why, and the edits that make
the bug: by path, [first line, line behind the last, text instead]. Their authors knew the codes and no rule. What is
found in a right program is false; a bug counts as found as in `bench.check.score`. It takes a minute and fetches
nothing. Rules have been written with these programs: they say what is understood, not how good the check is elsewhere.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allranks.check.engine import Settings, check
from allranks.check.registry import all_rules
from allranks.findings import Finding
from bench.check.labels import Label
from bench.check.score import near
from bench.page import table

HERE = Path(__file__).parent / "written"


@dataclass(frozen=True, slots=True)
class Written:
    """A program: right if it has no ``bug``."""

    name: str
    files: Mapping[str, str]
    bug: Label | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is found in a program: of a right one all, of another what hits its bug."""

    program: Written
    findings: tuple[Finding, ...]
    default: bool


def written(only: str = "") -> Iterator[Written]:
    """Yield all programs whose name has ``only`` in it."""
    for path in sorted(HERE.glob("*.json")):
        for base, entry in json.loads(path.read_text(encoding="utf-8")).items():
            name = f"{path.stem}-{base}"
            programs = [Written(name, entry["files"]), *(_with(bug, name, entry["files"]) for bug in entry["bugs"])]
            yield from (program for program in programs if only in program.name)


def _with(bug: Mapping[str, Any], base: str, files: Mapping[str, str]) -> Written:
    edited = {path: _edited(files.get(path, ""), edits) for path, edits in bug["edits"].items()}
    codes, also = tuple(bug["codes"]), tuple(bug["also"])
    label = Label(bug["id"], base, "0" * 40, bug["path"], bug["line"], codes, "", bug["why"], "", also)
    return Written(bug["id"], {**files, **edited}, label)


def _edited(text: str, edits: Iterable[Sequence[Any]]) -> str:
    lines = text.splitlines(keepends=True)
    for first, behind, instead in reversed(list(edits)):
        lines[first:behind] = [instead]
    return "".join(lines)


def outcome(program: Written) -> Outcome:
    """Check a program with all rules."""
    sources = {path: text.encode() for path, text in program.files.items()}
    every = check(sources, Settings(select=("ALL",))).findings
    found = [f for f in every if not f.code.startswith("AR9")]
    if program.bug is not None:
        found = [f for f in found if f.code in program.bug.codes and near(f, program.bug)]
    defaults = {rule.code for rule in all_rules() if rule.default}
    shown = tuple(f for f in found if f.code in defaults and f.confidence == "high")
    return Outcome(program, shown or tuple(found), bool(shown))


def written_table(outcomes: Iterable[Outcome]) -> str:
    """Bugs and those found, by the first digit of their code."""
    names = {
        "1": "effects",
        "2": "collectives",
        "3": "data",
        "4": "saves",
        "5": "loads",
        "6": "start-up",
        "7": "randomness",
    }
    count: Counter[tuple[str, str]] = Counter()
    for one in outcomes:
        if one.program.bug is not None:
            family = one.program.bug.codes[0][2]
            count.update([(family, "bugs"), *([(family, "default")] if one.default else [])])
            count.update([(family, "all")] if one.findings else [])
    rows = [
        (f"AR{f}xx {names.get(f, '')}", count[f, "bugs"], count[f, "default"], count[f, "all"])
        for f in sorted({f for f, _ in count})
    ]
    total = [sum(figures) for figures in zip(*(row[1:] for row in rows), strict=True)]
    return table(("rules", "bugs", "found by default", "found by all rules"), [*rows, ("all", *total)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only programs with this in their name: jax, research-b03, ...-k02")
    chosen = parser.parse_args()
    outcomes = [outcome(program) for program in written(chosen.only)]
    right = [one for one in outcomes if one.program.bug is None]
    for one in outcomes:
        bug = one.program.bug
        if bug is not None and not one.default:
            state = "opt-in" if one.findings else "missed"
            print(f"{state} {bug.id} {bug.path}:{bug.line} {'/'.join(bug.codes)} {bug.why}")
        for finding in one.findings if bug is None and one.default else ():
            print(f"false {one.program.name} {finding.place} {finding.code} {finding.message}")
    print(written_table(outcomes))
    print(f"right programs: {len(right)}; found in them by default: {sum(len(o.findings) for o in right if o.default)}")


if __name__ == "__main__":
    main()
