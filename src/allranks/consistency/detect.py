"""Find the file that computes fingerprints on the devices of a framework."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Protocol, cast

from allranks.consistency.fingerprint import Fingerprint, WordLayout


class DeviceFingerprints(Protocol):
    """The functions that ``consistency/jax.py`` and ``consistency/torch.py`` each provide."""

    def fingerprints(self, leaves: Sequence[tuple[Sequence[Any], Sequence[WordLayout]]]) -> list[list[Fingerprint]]:
        """Return the fingerprint of each box of each leaf: arrays on one device each, with the layout of their
        words.
        """


def device_fingerprints(framework: str) -> DeviceFingerprints:
    """Return the file for a framework, which the program has imported."""
    return cast(DeviceFingerprints, import_module(f"allranks.consistency.{framework}"))
