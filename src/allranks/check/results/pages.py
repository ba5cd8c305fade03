"""Draws docs/rules from the rules: ``python -m allranks.check.results.pages docs/rules``."""

from __future__ import annotations

import sys
from pathlib import Path

from allranks.check.registry import all_rules
from allranks.check.results.page import index, page, retired_table


def pages() -> dict[str, str]:
    """Return the text of every page by its file name."""
    return {
        "README.md": f"{index(all_rules())}\n{retired_table()}",
        **{f"{rule.code}.md": page(rule) for rule in all_rules()},
    }


def write(folder: Path) -> None:
    """Write the pages, and remove those of rules that are no more."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("AR[0-9]*.md"):
        if old.name not in pages():
            old.unlink()
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
