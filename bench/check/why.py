"""``python -m bench.check.why LABEL``: what the check knows at the place of a known bug, to see why it is missed.

Prints the lines there, the findings near it with their confidence, the calls that the interpreted roles reach there and
who reaches them, and what was not followed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import get_args

from allranks.check.engine import Settings, check, interpreted, summaries_of
from allranks.check.program import Event, Program
from allranks.check.reading import Memory
from allranks.check.rule import Assume
from allranks.check.sources.source import decode
from allranks.findings import Place
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
    yield from _reached(interpreted(sources, summaries_of(sources, Memory()), settings), label, around)


def _reached(program: Program, label: Label, around: int) -> Iterator[str]:
    def is_near(place: Place) -> bool:
        return any(place.path == path and abs(place.line - line) <= around for path, line in label.places)

    for event in program.events:
        if is_near(event.place):
            yield from _told(event)
    yield from (f"parted: {one.cause} {one.place} {one.condition}" for one in program.parted if is_near(one.place))
    yield from (f"not followed: {gap.symbol} {gap.why}" for gap in program.gaps if is_near(gap.place))


def _told(event: Event) -> Iterator[str]:
    kind = getattr(event.entry, "kind", "") or getattr(event.entry, "op", "")
    flags = [name for name in ("active", "sure", "per_process", "ordered", "looped") if getattr(event, name)]
    yield f"event {event.place} {event.name} [{kind}] {event.target!r} roles={sorted(event.roles)} {' '.join(flags)}"
    yield from (f"    from {step.symbol} {step.place}" for step in event.chain)
    if event.guard:
        yield f"    guard {event.guard}"


if __name__ == "__main__":
    main()
