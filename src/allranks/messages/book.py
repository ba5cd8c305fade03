"""Combine the known messages of all libraries in one ``MessageBook``."""

from __future__ import annotations

from allranks.messages import known_gloo, known_jax, known_system, known_torch
from allranks.messages.known import MessageBook

# A line with texts of two messages is the first one: an error of JAX quotes Gloo's, which is more specific.
BOOK = MessageBook((*known_gloo.KNOWN, *known_torch.KNOWN, *known_jax.KNOWN, *known_system.KNOWN))
