"""Who takes fingerprints on devices: the framework whose arrays they are."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Protocol, cast

from allranks.consistency.fingerprint import Fingerprint, WordLayout


class DeviceFingerprints(Protocol):
    """What ``consistency/jax.py`` and ``consistency/torch.py`` each provide as module functions."""

    def fingerprints(self, leaves: Sequence[tuple[Sequence[Any], Sequence[WordLayout]]]) -> list[list[Fingerprint]]:
        """Return the fingerprint of each box of each leaf: arrays on one device each, and where they stand."""


def device_fingerprints(framework: str) -> DeviceFingerprints:
    """Return the file that knows a framework, which the program has imported."""
    return cast(DeviceFingerprints, import_module(f"allranks.consistency.{framework}"))
