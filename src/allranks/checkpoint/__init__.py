"""Save, restore and read checkpoints: the public functions and types beside ``allranks.Checkpointer``.

``read`` returns a step of a run, and ``follow`` yields each new step. ``keep_last``, ``keep_every`` and ``keep_best``
return policies, which say which steps of a run are kept. A state may contain a ``RandomState``, and objects of types
that were registered with ``register_type``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from allranks.arrays.codecs import register_type as register_type
    from allranks.arrays.random_state import RandomState as RandomState
    from allranks.checkpoint.retention_policy import Saved as Saved
    from allranks.checkpoint.retention_policy import keep_best as keep_best
    from allranks.checkpoint.retention_policy import keep_every as keep_every
    from allranks.checkpoint.retention_policy import keep_last as keep_last
    from allranks.checkpoint.run_reader import follow as follow
    from allranks.checkpoint.run_reader import read as read

_PLACES = {
    "RandomState": "arrays.random_state",
    "Saved": "checkpoint.retention_policy",
    "follow": "checkpoint.run_reader",
    "keep_best": "checkpoint.retention_policy",
    "keep_every": "checkpoint.retention_policy",
    "keep_last": "checkpoint.retention_policy",
    "read": "checkpoint.run_reader",
    "register_type": "arrays.codecs",
}


def __getattr__(name: str) -> object:
    """Return a public name of the package. Its module is imported at the first use, not with the package."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"allranks.{_PLACES[name]}"), name)
