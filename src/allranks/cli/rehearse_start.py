"""Find out how the ranks of a rehearsal are started: without other launchers, and not twice."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from allranks.failure import one_line
from allranks.launch.job import Module, Script, Target
from allranks.rehearse.launchers import Start, advice_for_spawn, settings_of_accelerate, spawns_in, start_of
from allranks.settings import ConfigWrong


def started(command: list[str]) -> Start:
    """Return how to start the ranks of a command, and set the variables that its launcher would set.

    Raises ConfigWrong for a launcher that a rehearsal cannot replace.
    """
    start = start_of(command)
    if start.refusal:
        raise ConfigWrong(start.refusal)
    if not start.launcher:
        return start
    print(f"allranks rehearse: {start.launcher} is left out: the rehearsal starts the ranks.", file=sys.stderr)
    variables, ranks = dict(start.variables), start.ranks
    if start.config_file:
        known = _accelerate(start.config_file)
        ranks = int(known["num_processes"]) if ranks is None and known.get("num_processes", "").isdecimal() else ranks
        if "mixed_precision" in known:
            variables.setdefault("ACCELERATE_MIXED_PRECISION", known["mixed_precision"])
    os.environ |= variables
    return Start(start.program, ranks, start.launcher, variables)


def _accelerate(file: str) -> dict[str, str]:
    try:
        known = settings_of_accelerate(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigWrong(f"--config_file {file} cannot be read: {error.strerror}") from error
    if (kind := known.get("distributed_type", "")) in ("FSDP", "DEEPSPEED", "MEGATRON_LM", "TP"):
        raise ConfigWrong(
            f"{file}: accelerate launch prepares {kind}, which a rehearsal does not.",
            remedy="Rehearse with a configuration of distributed_type: MULTI_CPU, or set the plugin in the script.",
        )
    return known


def must_not_start_ranks(target: Target, ranks: int) -> None:
    """Raise ConfigWrong if the script starts its own ranks, whatever its launcher. With one rank, only print a note."""
    path = source_path(target)
    spawns = spawns_in(Path(path).read_text(encoding="utf-8", errors="replace")) if path else []
    if spawns and ranks > 1:
        raise ConfigWrong(advice_for_spawn(path, spawns[0]))
    if spawns:
        note = f"the script starts its own ranks ({spawns[0].name}): only their file calls are seen"
        print(f"allranks rehearse: {one_line(path)}:{spawns[0].line}: {note}.", file=sys.stderr)


def source_path(target: Target) -> str:
    """Return the path of the file that a target runs, or "" if it is not known."""
    if isinstance(target, Script):
        return target.path
    if isinstance(target, Module):
        base = target.name.replace(".", os.sep)
        return next((path for path in (f"{base}.py", f"{base}{os.sep}__main__.py") if os.path.isfile(path)), "")
    return ""
