"""A world of one: nobody to wait for, nothing to set up."""

from __future__ import annotations

import socket

from allranks.world.base import Identity, World
from allranks.world.store import LocalStore


def single_world() -> World:
    """Return a world whose only rank is this process."""
    identity = Identity(rank=0, size=1, local_rank=0, hosts=(socket.gethostname(),), backend="single")
    return World(identity, LocalStore())
