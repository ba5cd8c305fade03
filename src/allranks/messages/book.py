"""All known messages, of everyone who prints."""

from __future__ import annotations

from allranks.messages import known_jax, known_system, known_torch
from allranks.messages.known import Book

BOOK = Book((*known_jax.KNOWN, *known_torch.KNOWN, *known_system.KNOWN))
