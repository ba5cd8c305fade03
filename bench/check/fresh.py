"""``python -m bench.check.fresh``: what the check finds in code that nobody who writes rules has read, as counts alone.

``fresh.zip`` holds bugs that people collected who saw no rule (``labels``, and of other people ``second``), code
without labels, and the bugs of the projects behind the post-mortems (``seeds``). It is used once for each edition of
the check, and nobody who writes rules opens it. A bug counts as found if any finding is near it, as the people who
collected it knew no codes.
"""

from __future__ import annotations

import argparse
import json
import zipfile
from pathlib import Path
from typing import Any

from bench.check.fetch import FOLDER, Missing, tree
from bench.check.labels import CodeBase, Label
from bench.check.score import is_shown, near, run

HERE = Path(__file__).parent


def _read(name: str) -> list[dict[str, Any]]:
    with zipfile.ZipFile(HERE / "fresh.zip") as archive:
        return [json.loads(line) for line in archive.read(f"{name}.jsonl").decode().splitlines()]


def count(name: str, *, into: Path, mirror: Path | None) -> str:
    """Return how many bugs of a set have a finding near them, by default and with all rules, and what is left out."""
    entries = [Label(**{**entry, "codes": (), "also": tuple(entry["also"])}) for entry in _read(name)]
    commits: dict[tuple[str, str], list[Label]] = {}
    for entry in entries:
        commits.setdefault((entry.repository, entry.commit), []).append(entry)
    found = shown = left_out = 0
    for (repository, commit), group in commits.items():
        try:
            root = tree(repository, commit, into=into, mirror=mirror)
        except Missing:
            left_out += len(group)
            continue
        whole = CodeBase(repository, commit, ("",))
        findings, _, _ = run((repository, commit, root, (), whole))
        for label in group:
            there = [finding for finding in findings if near(finding, label)]
            found += bool(there)
            shown += any(map(is_shown, there))
    return f"{name}: {len(entries)} bugs, {shown} found by default, {found} by all rules, {left_out} not fetched"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, default=FOLDER, help=f"folder of the code (default: {FOLDER})")
    parser.add_argument("--mirror", type=Path, help="folder of git directories named owner+name, looked in first")
    chosen = parser.parse_args()
    for name in ("labels", "second", "seeds"):
        print(count(name, into=chosen.into, mirror=chosen.mirror))


if __name__ == "__main__":
    main()
