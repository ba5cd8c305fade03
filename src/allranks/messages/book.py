"""All known messages, of everyone who prints."""

from __future__ import annotations

from allranks.messages import known_gloo, known_jax, known_system, known_torch
from allranks.messages.known import Book

# Where a line has signs of two, the first is meant: an error of JAX says what Gloo said, and that says more.
BOOK = Book((*known_gloo.KNOWN, *known_torch.KNOWN, *known_jax.KNOWN, *known_system.KNOWN))
