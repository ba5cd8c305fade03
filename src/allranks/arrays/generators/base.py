"""What is known of a framework's random generators: one file for each framework, all with the same functions."""

from __future__ import annotations

from typing import Any, Protocol


class Generators(Protocol):
    """The random generators of one framework."""

    def owns(self, generator: object) -> bool:
        """Return whether this is a generator of the framework."""

    def of_module(self, name: str) -> Any:
        """Return the global generator of a module, None if the framework has no such module."""

    def state_of(self, generator: Any) -> bytes:
        """Return the state of a generator, in bytes."""

    def reseed(self, generator: Any, seed: int) -> Any:
        """Return the generator with a new state, made of a seed of 128 bits; where it can, it is changed in place."""
