"""Define what an adapter of random generators provides. Each framework has one file with these functions."""

from __future__ import annotations

from typing import Any, Protocol


class Generators(Protocol):
    """The functions of an adapter for the random generators of one framework."""

    def owns(self, generator: object) -> bool:
        """Return whether an object is a random generator of the framework."""

    def of_module(self, name: str) -> Any:
        """Return the global generator of the module called ``name``; None if the framework has no such module."""

    def state_of(self, generator: Any) -> bytes:
        """Return the state of a generator as bytes."""

    def reseed(self, generator: Any, seed: int) -> Any:
        """Return the generator with a new state, made from a seed of 128 bits. It is changed in place if possible."""
