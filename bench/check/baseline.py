"""``python -m bench.check.baseline``: what a change of the check loses and gains on the known set.

``--write FILE`` keeps today's findings. ``--compare FILE`` scores again, and prints for each rule how many of the true
and of the false findings are still there, and what is new. A finding is the same if it has the same code and file and
is at most two lines away. Trees that one of the two runs lacks are left out.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.check.fetch import FOLDER
from bench.check.score import Score, score
from bench.page import table

NEAR = 2


@dataclass(frozen=True, slots=True)
class Kept:
    """A finding as it is kept. ``shown``: by default. ``verdict``: true, false or open (nobody judged it)."""

    repository: str
    commit: str
    code: str
    path: str
    line: int
    symbol: str
    shown: bool
    verdict: str


def kept(whole: Score) -> list[Kept]:
    """Return the findings of a score."""
    return [
        Kept(
            f.repository,
            f.commit[:12],
            f.finding.code,
            f.finding.place.path,
            f.finding.place.line,
            f.finding.symbol,
            f.default,
            f.verdict,
        )
        for f in whole.found
    ]


def write(path: Path, findings: Iterable[Kept]) -> None:
    """Write findings as sorted JSON lines, packed."""
    lines = sorted(json.dumps(asdict(one), sort_keys=True) for one in findings)
    path.write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))


def read(path: Path) -> list[Kept]:
    """Return the findings that `write` wrote."""
    text = gzip.decompress(path.read_bytes()).decode()
    return [Kept(**json.loads(line)) for line in text.splitlines()]


def compare(before: Sequence[Kept], after: Sequence[Kept], codes: Iterable[str] = ()) -> str:
    """Return a table: for each rule the findings shown by default before, those that are still shown, and new ones."""
    wanted = frozenset(codes)
    count: Counter[tuple[str, str]] = Counter()
    old, new = _by_file(before), _by_file(after)
    for one in before:
        if one.shown and (not wanted or one.code in wanted):
            count[one.code, one.verdict] += 1
            count[one.code, f"kept {one.verdict}"] += any(other.shown for other in _same(one, new))
    for one in after:
        if one.shown and (not wanted or one.code in wanted) and not any(other.shown for other in _same(one, old)):
            count[one.code, f"new {one.verdict}"] += 1
    kinds = ("true", "kept true", "false", "kept false", "new true", "new false", "new open")
    rows = [(code, *(count[code, kind] for kind in kinds)) for code in sorted({code for code, _ in count})]
    total = [sum(row[at] for row in rows) for at in range(1, len(kinds) + 1)]
    return table(("rule", *kinds), [*rows, ("all", *total)])


def _by_file(findings: Iterable[Kept]) -> Mapping[tuple[str, ...], list[Kept]]:
    found: defaultdict[tuple[str, ...], list[Kept]] = defaultdict(list)
    for one in findings:
        found[one.repository, one.commit, one.code, one.path].append(one)
    return found


def _same(one: Kept, others: Mapping[tuple[str, ...], list[Kept]]) -> list[Kept]:
    there = others.get((one.repository, one.commit, one.code, one.path), [])
    return [other for other in there if abs(other.line - one.line) <= NEAR]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, default=FOLDER, help=f"folder of the code (default: {FOLDER})")
    parser.add_argument("--mirror", type=Path, help="folder of git directories named owner+name, looked in first")
    parser.add_argument("--only", default="", help="only repositories with this in their name")
    parser.add_argument("--write", type=Path, help="keep the findings in this file")
    parser.add_argument("--compare", type=Path, help="compare with the findings of this file")
    parser.add_argument("--codes", default="", help="only these rules: AR101,AR201")
    chosen = parser.parse_args()
    whole = score(("dev",), into=chosen.into, mirror=chosen.mirror, only=chosen.only)
    today = kept(whole)
    if chosen.write is not None:
        write(chosen.write, today)
    if chosen.compare is not None:
        trees = set(whole.trees)
        before = [one for one in read(chosen.compare) if (one.repository, one.commit) in trees]
        wanted = chosen.codes.split(",") if chosen.codes else ()
        print(compare(before, today, wanted))


if __name__ == "__main__":
    main()
