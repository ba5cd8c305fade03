"""``python -m bench.check.why LABEL``: what the check knows at the place of a known bug, to see why it is missed.

Prints the lines there, the findings near it with their confidence, the calls that the four roles reach there and
who reaches them, and what was not followed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import get_args

from allranks.check.engine import Settings, check, program_of
from allranks.check.program import Program
from allranks.check.roots import Root
from allranks.check.rule import Assume
from allranks.check.sources.source import decode
from allranks.check.traces.walk import Reach
from bench.check.fetch import FOLDER, files_of, tree
from bench.check.labels import Label, labels
from bench.check.score import near

AROUND = 6
ALL = Settings(select=("ALL",))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("label", nargs="+", help="ids of labels, or parts of them")
    parser.add_argument("--into", type=Path, default=FOLDER, help=f"folder of the code (default: {FOLDER})")
    parser.add_argument("--mirror", type=Path, help="folder of git directories named owner+name, looked in first")
    parser.add_argument("--around", type=int, default=AROUND, help="lines above and below the place")
    parser.add_argument("--assume", choices=get_args(Assume), default="auto", help="as for `allranks check`")
    chosen = parser.parse_args()
    for label in labels():
        if any(part in label.id for part in chosen.label):
            root = tree(label.repository, label.commit, into=chosen.into, mirror=chosen.mirror)
            sources = {name: path.read_bytes() for name, path in files_of(root).items()}
            print("\n".join(why(label, sources, replace(ALL, assume=chosen.assume), chosen.around)))


def why(label: Label, sources: Mapping[str, bytes], settings: Settings = ALL, around: int = AROUND) -> Iterator[str]:
    """Yield what is known at the places of a label in ``sources`` (path -> bytes)."""
    yield f"{label.id} {'/'.join(label.codes)}: {label.why}"
    for path, line in label.places:
        text = str(decode(sources[path])).splitlines()
        first = max(line - 1 - around, 0)
        yield f"-- {path}:{line}"
        yield from (f"{at + 1:6} {text[at]}" for at in range(first, min(line + around, len(text))))
    for finding in check(sources, settings).findings:
        if near(finding, label):
            yield f"finding: {finding.code} ({finding.confidence}) {finding.place} {finding.message}"
    yield from _reached(program_of(sources, settings), label, around)


def _reached(program: Program, label: Label, around: int) -> Iterator[str]:
    def is_near(path: str, line: int) -> bool:
        return any(path == one and abs(line - at) <= around for one, at in label.places)

    for root in program.analysis.roots:
        for reach in root.reached:
            if is_near(reach.call.path, reach.call.span[0]):
                yield from _described(root, reach)
        for parted in root.parted:
            if is_near(parted.path, parted.branch.span[0]):
                yield f"parted: {parted.cause} {parted.path}:{parted.branch.span[0]} {parted.branch.text}"
    for gap in program.analysis.unfollowed:
        if is_near(gap.path, gap.span[0]):
            yield f"not followed: {gap.symbol} {gap.why}"


def _described(root: Root, reach: Reach) -> Iterator[str]:
    call = reach.call
    flags = [name for name in ("active", "sure") if getattr(root, name)] + ["ordered"] * reach.ordered
    roles = "".join("x" if reach.certain >> role & 1 else "." for role in range(4))
    yield f"call {call.path}:{call.span[0]} {call.name} [{call.kind}] {call.target!r} roles={roles} {' '.join(flags)}"
    yield from (f"    from {symbol} {path}:{span[0]}" for symbol, path, span in reach.chain)


if __name__ == "__main__":
    main()
