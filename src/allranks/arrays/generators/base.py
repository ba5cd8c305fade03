"""Define what an adapter of random generators provides. Each framework has one file with these functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np


@dataclass(frozen=True, slots=True)
class GlobalState:
    """The state of the global generator of a module at one moment. Each of them is a Mersenne Twister.

    - ``module``: ``random``, ``numpy.random`` or ``torch``.
    - ``key``: the 624 words of the generator; ``position``: how many of them are used.
    - ``image``: bytes that a saved form of the state contains.
    - ``put_back()``: give the generator this state again.
    """

    module: str
    key: np.ndarray[Any, np.dtype[np.uint32]]
    position: int
    image: bytes
    put_back: Callable[[], object]


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

    def global_states(self) -> Iterator[GlobalState]:
        """Yield the present state of each global generator of the framework that is a Mersenne Twister."""
