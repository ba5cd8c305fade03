"""``python -m bench.check.score``: what ``allranks check`` finds of the known bugs, and what it says of good code.

Strict: a label is found by a finding of its code at most three lines from it, or with a note of its call chain there.
Each finding in a labelled file or in good code is true (it hits a label, or was judged so), false, or not judged yet.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from allranks.check.engine import Settings, check
from allranks.check.registry import all_rules
from allranks.findings import Finding
from bench.check.fetch import FOLDER, Missing, files_of, tree
from bench.check.labels import SPLITS, CodeBase, Judgement, Label, code_bases, judgements, labels, split
from bench.page import table

NEAR = 3
PER = 2000
Verdict: TypeAlias = Literal["true", "false", "open"]
# repository, commit, its files, what to score
Job: TypeAlias = tuple[str, str, Path, tuple[Label, ...], CodeBase | None]


@dataclass(frozen=True, slots=True)
class Found:
    """One finding, with what is said of it. ``default``: it is shown unless asked otherwise. ``only``: it is false for
    the one reason that its authors start the program so (`Judgement`)."""

    repository: str
    commit: str
    finding: Finding
    verdict: Verdict
    why: str
    default: bool
    good: bool
    only: str = ""


@dataclass(frozen=True, slots=True)
class Scored:
    """What became of a label: the finding that hits it, or else the codes that stand there instead."""

    label: Label
    hit: Finding | None
    default: bool
    instead: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Score:
    scored: tuple[Scored, ...]
    found: tuple[Found, ...]
    lines: Mapping[str, int]  # of good code, by repository
    missing: tuple[str, ...]
    crashed: tuple[str, ...]
    trees: tuple[tuple[str, str], ...] = ()  # repository and commit (12 digits) of what was checked


def places(finding: Finding) -> Iterable[tuple[str, int]]:
    """Yield where a finding points to: its own place, then those of its notes."""
    yield finding.place.path, finding.place.line
    for note in finding.notes:
        if note.place is not None:
            yield note.place.path, note.place.line


def near(finding: Finding, label: Label) -> bool:
    """Return whether a finding points to a label's place, whatever its code."""
    return any(
        path == wanted and abs(line - at) <= NEAR for path, line in places(finding) for wanted, at in label.places
    )


def scored(label: Label, findings: Sequence[Finding], defaults: frozenset[str]) -> Scored:
    """Return what became of a label; one that is shown by default counts before one that is not."""
    there = [finding for finding in findings if near(finding, label)]
    hits = sorted((f for f in there if f.code in label.codes), key=lambda f: not _shown(f, defaults))
    instead = tuple(sorted({f.code for f in there} - set(label.codes)))
    hit = hits[0] if hits else None
    return Scored(label, hit, hit is not None and _shown(hit, defaults), instead)


def _shown(finding: Finding, defaults: frozenset[str]) -> bool:
    return finding.code in defaults and finding.confidence == "high"


def is_shown(finding: Finding) -> bool:
    """Return whether a finding is shown by default."""
    return _shown(finding, frozenset(rule.code for rule in all_rules() if rule.default))


def run(job: Job) -> tuple[list[Finding], int, str]:
    """Check one commit; return the findings that are scored, the lines of good code, and where the check crashed."""
    repository, commit, root, wanted, whole = job
    keep: Callable[[str], bool]
    if whole is None:
        paths = {path for label in wanted for path, _ in label.places}
        keep = paths.__contains__
    else:
        keep = _within(whole)
    files = files_of(root)
    if whole is not None:  # scripts and pages say how programs are started, wherever they stand
        files = {name: path for name, path in files.items() if keep(name) or not name.endswith(".py")}
    sources = {name: path.read_bytes() for name, path in files.items()}
    lines = sum(text.count(b"\n") for name, text in sources.items() if keep(name) and name.endswith(".py"))
    try:
        every = check(sources, Settings(select=("ALL",))).findings
    except Exception:  # whatever it is: a crash on real code is told, and the others are still scored
        return [], lines, f"{repository} at {commit}:\n{traceback.format_exc(limit=-3)}"
    crash = next((f"{f.place.path}: {f.message}" for f in every if _is_lost(f)), "")
    ours = (f for f in every if not f.code.startswith("AR9"))
    hits = (f for f in ours if keep(f.place.path) or any(f.code in one.codes and near(f, one) for one in wanted))
    return list(hits), lines, f"{repository} at {commit}: {crash}" if crash else ""


def _is_lost(finding: Finding) -> bool:
    """The check failed there, or a rule gave a file up."""
    return finding.code == "AR903" and (finding.severity == "warning" or "did not look" in finding.message)


def _within(part: CodeBase) -> Callable[[str], bool]:
    def below(name: str, folders: Sequence[str]) -> bool:
        return any(folder in ("", name) or name.startswith(f"{folder}/") for folder in folders)

    return lambda name: below(name, part.paths) and not below(name, part.without)


def score(
    halves: Sequence[str],
    *,
    into: Path,
    mirror: Path | None = None,
    workers: int = 2,
    only: str = "",
) -> Score:
    """Run the check over the chosen halves of the set, or over the repositories of them whose name has ``only``.

    What cannot be fetched is left out and told in ``missing``.
    """
    jobs, missing = _jobs(halves, into, mirror, only)
    defaults = frozenset(rule.code for rule in all_rules() if rule.default)
    judged = judgements()
    results: list[Scored] = []
    found: list[Found] = []
    lines: Counter[str] = Counter()
    crashed: list[str] = []
    with ProcessPoolExecutor(workers) as pool:
        for (repository, commit, _, wanted, whole), (findings, count, crash) in zip(
            jobs, pool.map(run, jobs), strict=True
        ):
            good = whole is not None and whole.well_kept
            results += [scored(label, findings, defaults) for label in wanted]
            for finding in findings:
                said = _verdict(repository, finding, wanted, judged)
                shown = _shown(finding, defaults)
                found.append(Found(repository, commit, finding, said[0], said[1], shown, good, said[2]))
            if good:
                lines[repository] += count
            crashed += [crash] if crash else []
    trees = tuple((job[0], job[1][:12]) for job in jobs)
    return Score(tuple(results), tuple(found), lines, tuple(missing), tuple(crashed), trees)


def _jobs(halves: Sequence[str], into: Path, mirror: Path | None, only: str) -> tuple[list[Job], list[str]]:
    commits: dict[tuple[str, str], list[Label]] = {}
    for label in labels():
        commits.setdefault((label.repository, label.commit), []).append(label)
    wanted: list[tuple[str, str, tuple[Label, ...], CodeBase | None]] = [
        *((repository, commit, tuple(group), None) for (repository, commit), group in commits.items()),
        *((entry.repository, entry.commit, (), entry) for entry in code_bases()),
    ]
    jobs: list[Job] = []
    missing: list[str] = []
    for repository, commit, group, whole in wanted:
        if split(repository) in halves and only in repository:
            try:
                jobs.append((repository, commit, tree(repository, commit, into=into, mirror=mirror), group, whole))
            except Missing as error:
                missing.append(str(error))
    return jobs, missing


def _verdict(
    repository: str,
    finding: Finding,
    wanted: Sequence[Label],
    judged: Mapping[tuple[str, str, str, str], Judgement],
) -> tuple[Verdict, str, str]:
    for label in wanted:
        if finding.code in label.codes and near(finding, label):
            return "true", label.id, ""
    judgement = judged.get((repository, finding.code, finding.place.path, finding.symbol))
    if judgement is None:
        return "open", "", ""
    return ("true" if judgement.real else "false"), judgement.why, judgement.only


def halves_table(whole: Score) -> str:
    """Recall, precision and noise of each half: by default, and with every rule."""
    headers = ("", *(f"{half}, {rules}" for half in SPLITS for rules in ("by default", "all rules")))
    columns = [_column(whole, half, default) for half in SPLITS for default in (True, False)]
    return table(headers, [(name, *(column[name] for column in columns)) for name in columns[0]])


def _column(whole: Score, half: str, default: bool) -> dict[str, str]:
    results = [one for one in whole.scored if split(one.label.repository) == half]
    found = [f for f in whole.found if split(f.repository) == half and (f.default or not default)]
    hits = sum(one.hit is not None and (one.default or not default) for one in results)
    verdicts = Counter(f.verdict for f in found)
    alone = sum(f.verdict == "false" and bool(f.only) for f in found)
    lines = sum(count for repository, count in whole.lines.items() if split(repository) == half)
    in_good = Counter(f.verdict for f in found if f.good)
    return {
        "known bugs": str(len(results)),
        "found (recall)": f"{hits} ({_part(hits, len(results))})",
        "findings, in the files of the bugs and in the other code": str(len(found)),
        "true, false, not judged": f"{verdicts['true']}, {verdicts['false']}, {verdicts['open']}",
        "precision": _part(verdicts["true"], verdicts["true"] + verdicts["false"]),
        "false only because its authors start one process, or on one node": str(alone),
        "precision without these": _part(verdicts["true"], verdicts["true"] + verdicts["false"] - alone),
        "lines of good code": f"{lines:,}",
        f"findings per {PER:,} good lines": _rate(sum(in_good.values()), lines),
        f"of those false, per {PER:,} lines": _rate(in_good["false"] + in_good["open"], lines),
    }


def codes_table(whole: Score) -> str:
    """Each code, by half: its labels and those found; its findings, true, false and not judged yet."""
    names = {rule.code: rule for rule in all_rules()}
    rows = []
    for code in sorted({one.label.codes[0] for one in whole.scored} | {f.finding.code for f in whole.found}):
        rule = names.get(code)
        runs = "-" if rule is None else "yes" if rule.default else "opt-in"
        cells = [cell for half in SPLITS for cell in _of_code(whole, code, half)]
        rows.append((f"{code} {rule.name}" if rule else code, runs, *cells))
    counts = ("bugs", "found", "true", "false", "open", "precision")
    headers = [f"{half}: {name}" if name == counts[0] else name for half in SPLITS for name in counts]
    return table(("rule", "by default", *headers), rows)


def _of_code(whole: Score, code: str, half: str) -> tuple[int | str, ...]:
    ours = [one for one in whole.scored if one.label.codes[0] == code and split(one.label.repository) == half]
    verdicts = Counter(f.verdict for f in whole.found if f.finding.code == code and split(f.repository) == half)
    hits = sum(one.hit is not None for one in ours)
    precision = _part(verdicts["true"], verdicts["true"] + verdicts["false"])
    return len(ours), hits, verdicts["true"], verdicts["false"], verdicts["open"], precision


def _part(some: int, of: int) -> str:
    return f"{some / of:.2f}" if of else "-"


def _rate(count: int, lines: int) -> str:
    return f"{count * PER / lines:.2f}" if lines else "-"


def tables(*, quick: bool) -> str:
    """Both tables over the whole set; ``quick``: over the half that the rules were written with."""
    whole = score(SPLITS[:1] if quick else SPLITS, into=FOLDER)
    if whole.crashed:
        raise RuntimeError(f"the check crashed: {whole.crashed[0]}")
    left_out = f"\n\nLeft out, because it could not be fetched: {'; '.join(whole.missing)}" if whole.missing else ""
    return f"{halves_table(whole)}\n\n{codes_table(whole)}{left_out}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, default=FOLDER, help=f"folder of the code (default: {FOLDER})")
    parser.add_argument("--mirror", type=Path, help="folder of git directories named owner+name, looked in first")
    parser.add_argument("--split", choices=SPLITS, action="append", help="only this half (default: both)")
    parser.add_argument("--only", default="", help="only repositories with this in their name")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--show", choices=("missed", "true", "false", "open"), action="append", default=[])
    parser.add_argument("--code", help="show only findings whose code begins so")
    chosen = parser.parse_args()
    halves = chosen.split or SPLITS
    whole = score(
        halves,
        into=chosen.into,
        mirror=chosen.mirror,
        workers=chosen.workers,
        only=chosen.only,
    )
    for line in _listing(whole, chosen.show, chosen.code or ""):
        print(line)
    print(f"{halves_table(whole)}\n\n{codes_table(whole)}")
    for text in whole.missing:
        print(f"left out: {text}", file=sys.stderr)
    for text in whole.crashed:
        print(f"crashed: {text}", file=sys.stderr)


def _listing(whole: Score, kinds: Sequence[str], code: str) -> Iterable[str]:
    if "missed" in kinds:
        for one in whole.scored:
            if one.hit is None and one.label.codes[0].startswith(code):
                label = one.label
                instead = f" (there: {', '.join(one.instead)})" if one.instead else ""
                yield f"missed {'/'.join(label.codes)} {label.id} {label.path}:{label.line}{instead}: {label.why}"
    for f in whole.found:
        if f.verdict in kinds and f.finding.code.startswith(code):
            told = f"{f.finding.code} {f.repository}@{f.commit[:7]} {f.finding.place} [{f.finding.symbol}]"
            yield f"{f.verdict} {told} {f.finding.message}{f' -- {f.why}' if f.why else ''}"


if __name__ == "__main__":
    main()
