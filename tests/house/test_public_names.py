"""The public names are a contract: adding or losing one is a decision, seen in a diff of public_names.txt."""

from __future__ import annotations

import types
from pathlib import Path

import allranks

SNAPSHOT = Path(__file__).with_name("public_names.txt")


def test_the_public_names_are_those_of_the_snapshot() -> None:
    names = sorted(
        name
        for name in dir(allranks)
        if not name.startswith("_") and not isinstance(getattr(allranks, name), types.ModuleType)
    )
    assert names == SNAPSHOT.read_text().split()
    assert len(names) <= 21
