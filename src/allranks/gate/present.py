from __future__ import annotations

from allranks.world.base import World
from allranks.world.single import single_world

_world: World | None = None


def current_world() -> World:
    return _world or single_world()
