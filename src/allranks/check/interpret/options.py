"""Options of a command line: what they are when nobody gives them. Pure."""

from __future__ import annotations

from allranks.check.interpret.given import Given
from allranks.check.interpret.values import ANYTHING, Value
from allranks.check.summaries.render import render

# Under whose name a program keeps its options, as `held.settings_of` has it.
_NAMES = ("args", "opt", "opts", "options", "cfg", "config", "FLAGS", "hparams", "params")
OWNERS = tuple(f"*.{name}" for name in _NAMES)


def option(given: Given) -> tuple[str, Value] | None:
    """Return the name of an option that a call declares, and its default; None for other calls."""
    if render(given.node[1]).rpartition(".")[2] != "add_argument" or not given.values:
        return None
    named = given.argument("dest") or given.values[-1]
    return str(named.constant).lstrip("-").replace("-", "_"), given.argument("default") or ANYTHING
