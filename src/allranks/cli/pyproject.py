"""Find the tables of ``[tool.allranks]`` in pyproject.toml."""

from __future__ import annotations

import tomllib
from difflib import get_close_matches
from pathlib import Path

from allranks.cli.local_path import read_settings
from allranks.errors import NotThere
from allranks.settings import ConfigWrong

TABLES = ("check", "rehearse", "engines")


def table_of(file: Path, name: str) -> object | None:
    """Return the table ``[tool.allranks.NAME]`` of a file; None if the file or the table does not exist.

    Raises ConfigWrong for a file that cannot be read, and for a table whose name is nearly one of ``TABLES``.
    """
    try:
        text = read_settings(file)
    except NotThere:
        return None
    if "allranks" not in text:
        return None
    try:
        tables = tomllib.loads(text).get("tool", {}).get("allranks", {})
    except (tomllib.TOMLDecodeError, AttributeError, RecursionError) as error:
        raise ConfigWrong(f"{file} is not valid TOML: {error}") from error
    if not isinstance(tables, dict):
        return None
    for key in tables:
        if key not in TABLES and (near := get_close_matches(key, TABLES, n=1, cutoff=0.8)):
            raise ConfigWrong(
                f"{file}: unknown table [tool.allranks.{key}].", remedy=f"Did you mean [tool.allranks.{near[0]}]?"
            )
    return tables.get(name)


def closest(folder: Path, name: str) -> tuple[Path, object] | None:
    """Return the pyproject.toml with ``[tool.allranks.NAME]`` that is closest above a folder, and this table."""
    for one in (folder, *folder.parents):
        table = table_of(one / "pyproject.toml", name)
        if table is not None:
            return one / "pyproject.toml", table
    return None
