"""Implement ``allranks rehearse --suggest``: propose arguments that make a script small. Nothing is run."""

from __future__ import annotations

import json
import os
import shlex
import sys
import textwrap
import tomllib
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from allranks.check.sources.reach import candidates
from allranks.cli.rehearse_start import source_path
from allranks.launch.job import Module, Target
from allranks.rehearse.options import Found, options_in
from allranks.rehearse.suggest import Suggestion, suggest
from allranks.report.base import count
from allranks.report.columns import format_table

# So many files of the project are read from the script on.
_MOST = 40


def show_suggestion(target: Target, ranks: int) -> int:
    """Print proposed arguments for a script, and why. Return the exit code: 2 if its source is not found."""
    script = source_path(target)
    if not script:
        print("allranks rehearse --suggest: name a script, or a module of this folder.", file=sys.stderr)
        return 2
    found = _found(script)
    files = [file for one in found.values() for file in one.files]
    configs = {path: values for file in files for path, values in _configs(Path(script).parent, file)}
    proposed = suggest(found, ranks=ranks, configs=configs)
    words = ["-m", target.name] if isinstance(target, Module) else [script]
    print(
        "\n".join(_lines(proposed, found, f"allranks rehearse -n {ranks} {shlex.join([*words, *proposed.arguments])}"))
    )
    return 0


def _found(script: str) -> dict[str, Found]:
    """Return the options in a script and in the files of the project that it imports."""
    found: dict[str, Found] = {}
    waiting = [script]
    while waiting and len(found) < _MOST:
        path = waiting.pop(0)
        if path in found or not os.path.isfile(path):
            continue
        raw = Path(path).read_bytes()
        found[path] = options_in(raw.decode("utf-8", errors="replace"))
        waiting += [os.path.relpath(one) for one in candidates(path, raw)]
    return {path: one for path, one in found.items() if one.options or one.readers}


def _configs(folder: Path, name: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the values of a configuration file, which may be named without its ending, by its path."""
    for base in (folder, Path()):
        for ending in ("", ".yaml", ".yml"):
            path = base / f"{name}{ending}"
            if path.is_file() and (values := _values(path)):
                return [(os.path.relpath(path), values)]
    return []


def _values(path: Path) -> Mapping[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".json":
            values = json.loads(text)
        elif path.suffix == ".toml":
            values = tomllib.loads(text)
        else:
            values = _yaml(text)
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, Mapping) else {}


def _yaml(text: str) -> Any:
    """Return the values of a YAML file. Raises ValueError if it is none, or if PyYAML is not installed."""
    try:
        yaml = import_module("yaml")
    except ImportError as error:
        raise ValueError("PyYAML is not installed") from error
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _lines(proposed: Suggestion, found: Mapping[str, Found], command: str) -> list[str]:
    number = count(sum(len(one.options) for one in found.values()), "option")
    readers = ", ".join(dict.fromkeys(reader for one in found.values() for reader in one.readers))
    if not found:
        return ["no options were found (argparse, click, typer, dataclasses, hydra, LightningCLI). Nothing was run."]
    lines = [f"Found {number} of {readers}. Nothing was run.", "", "try:", f"  {command}"]
    if proposed.reasons:
        lines += ["", format_table(("argument", "default", "defined in"), proposed.reasons)]
    if proposed.open:
        lines += ["", "needed as well, small and on this machine:", *(f"  {one}" for one in proposed.open)]
    if proposed.kept:
        lines += ["", *textwrap.wrap("unchanged: " + ", ".join(proposed.kept), 110, subsequent_indent="  ")]
    if proposed.notes:
        lines += ["", *proposed.notes]
    return lines
