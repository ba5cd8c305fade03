"""Choose the client of an engine. Its module is imported only then: it may need what is not installed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from allranks.engines.base import Engine, EngineFailed
from allranks.engines.kind import Kind


def client_of(kind: Kind, profile: Any, launcher: tuple[str, ...]) -> Engine:
    """Return the client of a kind, with a profile. ``launcher`` starts allranks on a host like this one.

    Raises EngineFailed if a package that it needs is not installed.
    """
    try:
        module = import_module(kind.client)
    except ImportError as error:
        if (error.name or "").startswith("allranks"):
            raise
        raise EngineFailed(
            f"{kind.name}: the package {error.name} is not installed.",
            remedy=f"Install it: pip install 'allranks[{kind.name}]'.",
        ) from error
    engine: Engine = module.Client(profile, launcher)
    return engine
