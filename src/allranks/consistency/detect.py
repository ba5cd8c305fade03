"""Import the module that computes fingerprints of arrays on the devices of a framework."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Protocol, cast

from allranks.consistency.fingerprint import Fingerprint, WordLayout


class DeviceFingerprints(Protocol):
    """The functions that ``consistency/jax.py`` and ``consistency/torch.py`` each provide."""

    def fingerprints(self, leaves: Sequence[tuple[Sequence[Any], Sequence[WordLayout]]]) -> list[list[Fingerprint]]:
        """Return the fingerprints of each leaf, one for each of its boxes.

        A leaf is given as one array for each device, and the layout of the words of each box.
        """


def device_fingerprints(framework: str) -> DeviceFingerprints:
    """Return the module of ``allranks.consistency`` for a framework, which the program must have imported."""
    return cast(DeviceFingerprints, import_module(f"allranks.consistency.{framework}"))
