"""allranks: multi-process training that is correct, and proves it."""

from allranks.world.base import World as World
from allranks.world.detect import current as current
from allranks.world.detect import init as init
from allranks.world.simulated import SimulatedWorld as SimulatedWorld
